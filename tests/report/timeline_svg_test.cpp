#include "lockstep/report/timeline_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <vector>

#include "lockstep/files/pipeline_trace.h"

namespace lockstep::report {
namespace {

using files::TraceEvent;

std::vector<TraceEvent> planned_step() {
  const auto schedule = plan::plan_pipeline({"1f1b", 2, 1, 3});
  return files::planned_events(schedule, plan::simulate(schedule, plan::even_costs({1, 1, 1}, 1)));
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "not there: " << part << "\nin " << text;
}

/// Attribute `name` of the box whose tooltip begins with `title`.
double box(const std::string& svg, const std::string& title, const std::string& name) {
  const size_t end = svg.find("<title>" + title);
  const size_t begin = svg.rfind("<rect", end);
  const std::string tag = svg.substr(begin, end - begin);
  std::smatch found;
  if (end == std::string::npos ||
      !std::regex_search(tag, found, std::regex(" " + name + "=\"([-0-9.]+)\""))) {
    ADD_FAILURE() << title << " has no " << name;
    return -1;
  }
  return std::stod(found[1]);
}

/// Whether every element that is opened is closed, in order.
bool is_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)[^<>]*?(/?)>");
  for (std::sregex_iterator at(svg.begin(), svg.end(), tag), end; at != end; ++at) {
    if ((*at)[3] == "/") continue;
    if ((*at)[1] != "/") {
      open.push_back((*at)[2]);
    } else if (open.empty() || open.back() != (*at)[2]) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty() && count(svg, "<") == count(svg, ">");
}

TEST(TimelineSvg, ARankIsARowAndMeasuredStandsAbovePlanned) {
  std::vector<TraceEvent> events = planned_step();
  for (TraceEvent event : planned_step()) {
    event.planned = false;
    event.name += "m";
    event.start += 100;  // another clock
    events.push_back(event);
  }
  const std::string svg = timeline_svg(events, {.title = "1f1b"});
  EXPECT_TRUE(is_well_formed(svg));
  expect_has(svg, ">1f1b</text>");
  EXPECT_LT(box(svg, "F0m forward", "y"), box(svg, "F0 forward", "y"));
  EXPECT_EQ(box(svg, "F0m forward", "x"), box(svg, "F0 forward", "x"));
  EXPECT_LT(svg.find(">rank 0<"), svg.find(">planned rank 0<"));
  EXPECT_LT(svg.find(">planned rank 0<"), svg.find(">rank 1<"));
  // 2 ranks of 3 forwards and 3 backwards, twice; and the background and two boxes of the legend.
  EXPECT_EQ(count(svg, "<rect"), 24 + 3);
  EXPECT_EQ(svg, timeline_svg(events, {.title = "1f1b"}));
}

TEST(TimelineSvg, BoxesLieWhereTheirTimesAre) {
  const std::vector<TraceEvent> events = {{0, "compute", "F0", "forward", 2, 1},
                                          {0, "compute", "B0", "backward", 4, 2}};
  const std::string svg = timeline_svg(events, {.width = 400});
  EXPECT_EQ(box(svg, "F0", "width"), 100);
  EXPECT_EQ(box(svg, "B0", "x") - box(svg, "F0", "x"), 200);
  EXPECT_EQ(box(svg, "B0", "width"), 200);
  expect_has(svg, "<title>B0 backward: 2 s, for 2 s</title>");
  expect_has(svg, ">0 s</text>");
  expect_has(svg, ">4 s</text>");
}

TEST(TimelineSvg, CategoriesHaveTheirColoursAndALegend) {
  std::vector<TraceEvent> events;
  for (const char* category : {"forward", "backward", "weight", "communication", "optimizer"}) {
    events.push_back({0, "a", "x", category, static_cast<double>(events.size()), 1});
  }
  const std::string svg = timeline_svg(events);
  for (const char* entry :
       {">forward<", ">backward<", ">weight<", ">communication<", ">optimizer<"}) {
    EXPECT_EQ(count(svg, entry), 1) << entry;
  }
  for (const char* colour : {"#4c78c8", "#4aa35a", "#ef8a2b", "#9a9a9a", "#8a63b8"}) {
    EXPECT_EQ(count(svg, colour), 2) << colour;
  }
  EXPECT_EQ(count(svg, ">other<"), 0);
  events.push_back({0, "a", "x", "data", 9, 1});
  EXPECT_EQ(count(timeline_svg(events), ">other<"), 1);
  // Communication goes on beside the computing: a line below it.
  EXPECT_LT(box(svg, "x communication", "height"), box(svg, "x forward", "height"));
  EXPECT_GT(box(svg, "x communication", "y"), box(svg, "x forward", "y"));
}

TEST(TimelineSvg, NumbersStandWhereTheyFit) {
  const std::vector<TraceEvent> events = {{0, "a", "F7.1", "forward", 0, 97},
                                          {0, "a", "F8.1", "forward", 97, 1},
                                          {0, "a", "warmup", "forward", 98, 50}};
  const std::string svg = timeline_svg(events, {.width = 600});
  EXPECT_EQ(count(svg, ">7.1</text>"), 1);
  EXPECT_EQ(count(svg, ">8.1</text>"), 0);
  EXPECT_EQ(count(timeline_svg(events, {.width = 12000}), ">8.1</text>"), 1);
}

TEST(TimelineSvg, NamesAreEscaped) {
  const std::string svg =
      timeline_svg({{0, "a", "<script>&\"\x01", "<b>", 0, 1}}, {.title = "a < b & c"});
  EXPECT_TRUE(is_well_formed(svg));
  expect_has(svg, "&lt;script&gt;&amp;&quot; &lt;b&gt;");
  expect_has(svg, "a &lt; b &amp; c");
}

TEST(TimelineSvg, NothingAndNoTimeAreAPictureToo) {
  EXPECT_TRUE(is_well_formed(timeline_svg({})));
  const std::string svg = timeline_svg({{0, "a", "F0", "forward", 5, 0}});
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::report
