#include "lockstep/files/trace_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::message_of;

std::vector<TraceEvent> some_events() {
  return {{.rank = 1,
           .lane = "compute",
           .name = "F0",
           .category = "forward",
           .start = 0.25,
           .seconds = 0.5},
          {.rank = 0,
           .lane = "compute",
           .name = "B0.1",
           .category = "backward",
           .start = 1,
           .seconds = 0},
          {.rank = 1,
           .lane = "communication",
           .name = "\"b0\" <&> \xc3\xa9",
           .category = "x",
           .start = -0.125,
           .seconds = 2},
          {.rank = 1,
           .lane = "compute",
           .name = "F0",
           .category = "forward",
           .start = 0,
           .seconds = 0.5,
           .planned = true}};
}

TEST(TraceFile, ComesBackAsItWasWritten) {
  const TempFolder folder("trace-test");
  write_trace(folder.file("t.json"), some_events());
  EXPECT_EQ(read_trace(folder.file("t.json")), some_events());
  write_trace(folder.file("t.json"), {});
  EXPECT_TRUE(read_trace(folder.file("t.json")).empty());
  EXPECT_EQ(on_disk::files_in(folder.path()), 1);
}

TEST(TraceFile, IsWhatPerfettoReads) {
  const TempFolder folder("trace-test");
  write_trace(folder.file("t.json"), some_events());
  const auto json = nlohmann::json::parse(on_disk::get(folder.file("t.json")));
  std::vector<std::string> names;
  std::vector<nlohmann::json> events;
  for (const auto& entry : json["traceEvents"]) {
    if (entry["ph"] == "X") events.push_back(entry);
    if (entry["name"] == "process_name" || entry["name"] == "thread_name") {
      names.push_back(entry["args"]["name"]);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"rank 1", "compute", "rank 0", "compute",
                                             "communication", "planned rank 1", "compute"}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["pid"], 1);
  EXPECT_EQ(events[0]["ts"], 250000.0);
  EXPECT_EQ(events[0]["dur"], 500000.0);
  EXPECT_EQ(events[0]["cat"], "forward");
  EXPECT_EQ(events[2]["tid"], 1);
  EXPECT_NE(events[3]["pid"], events[0]["pid"]);
}

TEST(TraceFile, KeepsNanoseconds) {
  const TempFolder folder("trace-test");
  const double start = 12345.678901234567;
  write_trace(folder.file("t.json"), {{0, "a", "F0", "forward", start, 1e-9}});
  const auto events = read_trace(folder.file("t.json"));
  EXPECT_LE(std::abs(events.at(0).start - start), 0.6e-9);
  EXPECT_NEAR(events.at(0).seconds, 1e-9, 1e-15);
}

TEST(TraceFile, ReadsOtherWritersLists) {
  const TempFolder folder("trace-test");
  on_disk::put(folder.file("t.json"),
               R"([{"ph": "B", "ts": 1}, 7, {"ph": "X", "pid": 3, "tid": 4, "ts": 1, "dur": 2}])");
  EXPECT_EQ(read_trace(folder.file("t.json")),
            (std::vector<TraceEvent>{{3, "4", "", "", 1e-6, 2e-6}}));
}

TEST(TraceFile, NamesTheFileAndWhatIsWrongWithIt) {
  const TempFolder folder("trace-test");
  const std::string path = folder.file("t.json");
  const auto refusal = [&](std::string_view text) {
    on_disk::put(path, text);
    return message_of<StateError>([&] { read_trace(path); });
  };
  EXPECT_EQ(message_of<StateError>([&] { read_trace(folder.file("none")); }),
            "cannot read " + folder.file("none") + ": No such file or directory.");
  EXPECT_NE(refusal("{\"traceEvents\": [").find(path + " is no trace: it is no JSON."),
            std::string::npos);
  for (const char* text : {"7", "{}", "{\"traceEvents\": 7}", "\"text\""}) {
    EXPECT_EQ(refusal(text), path + " is no trace: it has no list of traceEvents.");
  }
  EXPECT_EQ(refusal(R"([{"ph": "M"}, {"ph": "X", "ts": 1, "dur": "long"}])"),
            path + " is no trace that can be shown: event 1 has no dur, a number of microseconds.");
}

}  // namespace
}  // namespace lockstep::files
