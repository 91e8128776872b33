#include "lockstep/report/timeline_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"

namespace lockstep::report {
namespace {

using files::TraceEvent;

struct Category {
  std::string_view name;
  std::string_view colour;
};

constexpr std::array<Category, 5> kCategories = {{{"forward", "#4c78c8"},
                                                  {"backward", "#4aa35a"},
                                                  {"weight", "#ef8a2b"},
                                                  {"communication", "#9a9a9a"},
                                                  {"optimizer", "#8a63b8"}}};
constexpr std::string_view kOtherColour = "#cfcfcf";

// Pixels.
constexpr int kLeft = 110;
constexpr int kTop = 64;
constexpr int kRow = 30;
constexpr int kBox = 20;
constexpr int kLine = 4;  // of communication, below the boxes
constexpr int kBottom = 40;
constexpr int kRight = 20;
constexpr double kDigit = 6.5;  // wide

std::string_view colour_of(const std::string& category) {
  for (const Category& known : kCategories) {
    if (known.name == category) return known.colour;
  }
  return kOtherColour;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else if (c == '"') {
      result += "&quot;";
    } else if (static_cast<unsigned char>(c) >= ' ') {
      result += c;  // XML has no other control characters
    }
  }
  return result;
}

std::string pixels(double value) { return base::fixed_text(value, 2); }

std::string text_at(double x, double y, std::string_view style, std::string_view text) {
  return base::str("<text x=\"", pixels(x), "\" y=\"", pixels(y), "\" ", style, ">", escaped(text),
                   "</text>\n");
}

/// "F12.1" -> "12.1": the micro-batch, and the chunk.
std::string_view number_in(std::string_view name) {
  const size_t first = name.find_first_of("0123456789");
  return first == std::string_view::npos ? std::string_view() : name.substr(first);
}

/// 1, 2 or 5 times a power of ten: about eight steps to `span`.
double tick_of(double span) {
  const double rough = span / 8;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string time_text(double seconds, double span) {
  const auto [factor, unit] = span >= 1      ? std::pair{1.0, " s"}
                              : span >= 1e-3 ? std::pair{1e3, " ms"}
                                             : std::pair{1e6, " us"};
  std::string number = base::fixed_text(seconds * factor, 3);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return number + unit;
}

class Picture {
 public:
  Picture(const std::vector<TraceEvent>& events, const TimelineOptions& options)
      : events_(events), options_(options) {
    for (const TraceEvent& event : events) {
      rows_.try_emplace({event.rank, event.planned}, 0);
      const auto [origin, first] = origins_.try_emplace(event.planned, event.start);
      if (!first) origin->second = std::min(origin->second, event.start);
    }
    int row = 0;
    for (auto& [key, index] : rows_) index = row++;
    for (const TraceEvent& event : events) {
      span_ = std::max(span_, event.start - origins_[event.planned] + event.seconds);
    }
  }

  std::string svg() const {
    const int width = kLeft + options_.width + kRight;
    const int height = axis() + kBottom;
    std::string text = base::str(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
        "\" viewBox=\"0 0 ", width, " ", height,
        "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n");
    text += text_at(kLeft, 22, "font-size=\"15\"", options_.title);
    return text + legend() + heads() + boxes() + clock() + "</svg>\n";
  }

 private:
  int axis() const { return kTop + kRow * static_cast<int>(rows_.size()); }
  double x_of(double seconds) const {
    return kLeft + (span_ > 0 ? seconds / span_ * options_.width : 0);
  }

  std::string legend() const {
    std::set<std::string_view> used;
    bool others = false;
    for (const TraceEvent& event : events_) {
      used.insert(event.category);
      others |= colour_of(event.category) == kOtherColour;
    }
    std::string text;
    double x = kLeft;
    const auto entry = [&](std::string_view name, std::string_view colour) {
      text += base::str("<rect x=\"", pixels(x), "\" y=\"34\" width=\"12\" height=\"12\" fill=\"",
                        colour, "\"/>\n");
      text += text_at(x + 16, 44, "", name);
      x += 40 + kDigit * static_cast<double>(name.size());
    };
    for (const Category& category : kCategories) {
      if (used.contains(category.name)) entry(category.name, category.colour);
    }
    if (others) entry("other", kOtherColour);
    return text;
  }

  std::string heads() const {
    std::string text;
    for (const auto& [key, row] : rows_) {
      const double y = kTop + kRow * row + kBox * 0.7;
      const std::string name = base::str(key.second ? "planned " : "", "rank ", key.first);
      text += text_at(kLeft - 8, y,
                      key.second ? "text-anchor=\"end\" fill=\"#777777\"" : "text-anchor=\"end\"",
                      name);
    }
    return text;
  }

  std::string boxes() const {
    std::string text;
    for (const TraceEvent& event : events_) {
      const double start = event.start - origins_.at(event.planned);
      const double x = x_of(start);
      const double width = std::max(0.5, x_of(start + event.seconds) - x);
      const bool line = event.category == "communication";
      const double y = kTop + kRow * rows_.at({event.rank, event.planned}) + (line ? kBox + 1 : 0);
      text +=
          base::str("<rect x=\"", pixels(x), "\" y=\"", pixels(y), "\" width=\"", pixels(width),
                    "\" height=\"", line ? kLine : kBox, "\" fill=\"", colour_of(event.category),
                    "\"", line ? "" : " stroke=\"white\" stroke-width=\"0.5\"",
                    event.planned ? " fill-opacity=\"0.6\"" : "", "><title>", escaped(event.name),
                    " ", escaped(event.category), ": ", time_text(start, span_), ", for ",
                    time_text(event.seconds, span_), "</title></rect>\n");
      const std::string_view number = number_in(event.name);
      const bool fits = kDigit * static_cast<double>(number.size()) + 2 <= width;
      if (line || number.empty() || !fits) continue;
      text += text_at(x + width / 2, y + kBox * 0.7,
                      "text-anchor=\"middle\" pointer-events=\"none\"", number);
    }
    return text;
  }

  std::string clock() const {
    std::string text = base::str("<path d=\"M", kLeft, " ", axis(), "H", kLeft + options_.width,
                                 "\" stroke=\"black\"/>\n");
    if (span_ <= 0) return text;
    const double tick = tick_of(span_);
    for (int i = 0; i * tick <= span_ * (1 + 1e-9); ++i) {
      const std::string x = pixels(x_of(i * tick));
      text += base::str("<path d=\"M", x, " ", axis(), "v5\" stroke=\"black\"/>\n");
      text += text_at(x_of(i * tick), axis() + 18, "text-anchor=\"middle\"",
                      time_text(i * tick, span_));
    }
    return text;
  }

  const std::vector<TraceEvent>& events_;
  const TimelineOptions& options_;
  std::map<std::pair<int, bool>, int> rows_;  // by rank, measured before planned
  std::map<bool, double> origins_;            // the first start of what was planned, and measured
  double span_ = 0;
};

}  // namespace

std::string timeline_svg(const std::vector<TraceEvent>& events, const TimelineOptions& options) {
  return Picture(events, options).svg();
}

}  // namespace lockstep::report
