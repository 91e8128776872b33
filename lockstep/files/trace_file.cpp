#include "lockstep/files/trace_file.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/number_text.h"
#include "lockstep/base/str.h"
#include "lockstep/files/atomic_file.h"

namespace lockstep::files {
namespace {

using nlohmann::json;

constexpr int kPlannedPid = 1'000'000;  // and the rank
constexpr std::string_view kRank = "rank ";
constexpr std::string_view kPlannedRank = "planned rank ";

int pid_of(const TraceEvent& event) {
  return event.planned ? kPlannedPid + event.rank : event.rank;
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

std::string metadata(int pid, int tid, const char* what, const std::string& args) {
  return base::str(R"({"ph": "M", "pid": )", pid, R"(, "tid": )", tid, R"(, "name": ")", what,
                   R"(", "args": {)", args, "}}");
}

/// Lanes of each process, numbered in the order in which they come.
using Lanes = std::map<int, std::map<std::string, int>>;

std::vector<std::string> names_of(const std::vector<TraceEvent>& events, Lanes& lanes) {
  std::vector<std::string> lines;
  for (const TraceEvent& event : events) {
    const int pid = pid_of(event);
    const auto [process, is_new] = lanes.try_emplace(pid);
    if (is_new) {
      const std::string name = base::str(event.planned ? kPlannedRank : kRank, event.rank);
      lines.push_back(metadata(pid, 0, "process_name", base::str(R"("name": ")", name, '"')));
      lines.push_back(metadata(pid, 0, "process_sort_index",
                               base::str(R"("sort_index": )", 2 * event.rank + event.planned)));
    }
    const int tid = static_cast<int>(process->second.size());
    if (!process->second.try_emplace(event.lane, tid).second) continue;
    lines.push_back(metadata(pid, tid, "thread_name", R"("name": )" + quoted(event.lane)));
  }
  return lines;
}

std::string line_of(const TraceEvent& event, int tid) {
  LOCKSTEP_ASSERT(std::isfinite(event.start) && std::isfinite(event.seconds),
                  "times of a trace are numbers");
  return base::str(R"({"ph": "X", "pid": )", pid_of(event), R"(, "tid": )", tid, R"(, "ts": )",
                   base::fixed_text(event.start * 1e6, 3), R"(, "dur": )",
                   base::fixed_text(event.seconds * 1e6, 3), R"(, "name": )", quoted(event.name),
                   R"(, "cat": )", quoted(event.category), "}");
}

json parsed(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw StateError(base::str("cannot read ", path, ": ", std::strerror(errno), "."));
  try {
    return json::parse(file);
  } catch (const json::exception& error) {
    throw StateError(base::str(path, " is no trace: it is no JSON.\n  ", error.what()));
  }
}

/// The rank in "rank 3" or "planned rank 3"; -1: another name.
int rank_in(std::string_view name, std::string_view prefix) {
  int rank = -1;
  if (!name.starts_with(prefix)) return rank;
  name.remove_prefix(prefix.size());
  const char* const end = name.data() + name.size();
  const auto found = std::from_chars(name.data(), end, rank);
  return found.ec == std::errc() && found.ptr == end ? rank : -1;
}

/// Builds events from the entries of a trace, one by one.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  std::vector<TraceEvent> read(const json& entries) {
    for (const json& entry : entries) {
      if (text(entry, "ph") == "M") learn_name(entry);
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      if (text(entries[i], "ph") == "X") add(entries[i], i);
    }
    return std::move(events_);
  }

 private:
  static std::string text(const json& entry, const char* key) {
    const auto found = entry.is_object() ? entry.find(key) : entry.end();
    return found != entry.end() && found->is_string() ? found->get<std::string>() : "";
  }

  static int number(const json& entry, const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_number_integer() ? found->get<int>() : 0;
  }

  void learn_name(const json& entry) {
    const auto args = entry.find("args");
    if (args == entry.end()) return;
    const std::string name = text(*args, "name");
    const std::pair thread{number(entry, "pid"), number(entry, "tid")};
    if (text(entry, "name") == "process_name") processes_[thread.first] = name;
    if (text(entry, "name") == "thread_name") lanes_[thread] = name;
  }

  double seconds(const json& entry, const char* key, size_t index) const {
    const auto found = entry.find(key);
    if (found != entry.end() && found->is_number()) return found->get<double>() / 1e6;
    throw StateError(base::str(path_, " is no trace that can be shown: event ", index, " has no ",
                               key, ", a number of microseconds."));
  }

  void add(const json& entry, size_t index) {
    const std::pair thread{number(entry, "pid"), number(entry, "tid")};
    const std::string& process = processes_[thread.first];
    const int planned = rank_in(process, kPlannedRank);
    const int measured = rank_in(process, kRank);
    const auto lane = lanes_.find(thread);
    events_.push_back({.rank = planned >= 0    ? planned
                               : measured >= 0 ? measured
                                               : thread.first,
                       .lane = lane != lanes_.end() ? lane->second : std::to_string(thread.second),
                       .name = text(entry, "name"),
                       .category = text(entry, "cat"),
                       .start = seconds(entry, "ts", index),
                       .seconds = seconds(entry, "dur", index),
                       .planned = planned >= 0});
  }

  const std::string& path_;
  std::map<int, std::string> processes_;
  std::map<std::pair<int, int>, std::string> lanes_;
  std::vector<TraceEvent> events_;
};

}  // namespace

void write_trace(const std::string& path, const std::vector<TraceEvent>& events) {
  Lanes lanes;
  std::vector<std::string> lines = names_of(events, lanes);
  for (const TraceEvent& event : events) {
    lines.push_back(line_of(event, lanes[pid_of(event)][event.lane]));
  }
  AtomicFile file(path);
  file.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
  for (size_t i = 0; i < lines.size(); ++i) file.write((i > 0 ? ",\n" : "\n") + lines[i]);
  file.write("\n]}\n");
  file.commit();
}

std::vector<TraceEvent> read_trace(const std::string& path) {
  const json trace = parsed(path);
  const auto entries = trace.is_object() ? trace.find("traceEvents") : trace.end();
  const bool is_object = trace.is_object() && entries != trace.end() && entries->is_array();
  if (!is_object && !trace.is_array()) {
    throw StateError(base::str(path, " is no trace: it has no list of traceEvents."));
  }
  return Reader(path).read(is_object ? *entries : trace);
}

}  // namespace lockstep::files
