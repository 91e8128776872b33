// `lockstep schedule` and `lockstep trace`, in this process: neither starts a rank.

#include "lockstep/cli/schedule.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/cli/trace.h"
#include "lockstep/files/temp_folder.h"
#include "lockstep/files/trace_file.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

using Command = int (*)(const std::vector<std::string>&);

std::string printed(Command command, const std::vector<std::string>& args) {
  testing::internal::CaptureStdout();
  int code = -1;
  std::string refusal;
  try {
    code = command(args);
  } catch (const Error& error) {
    refusal = error.what();
  }
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code == 0, refusal.empty());
  return refusal.empty() ? out : "refused: " + refusal;
}

std::string text_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ScheduleCommand, PrintsTheGridItsBubbleAndWhatIsHeld) {
  EXPECT_EQ(printed(schedule_command, {"-p", "2", "-m", "3"}),
            "1f1b: 2 stages, 3 micro-batches\n\n"
            "time     0  1  2  3  4  5  6  7  8  9  10 11\n"
            "stage 0  F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
            "stage 1  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n"
            "a column is 1 s\n\n"
            "           in flight   weights held    idle inside\n"
            "stage 0            2              0         25.0 %\n"
            "stage 1            1              0          0.0 %\n\n"
            "step       12.000 s\n"
            "bubble     25.0 % simulated, 25.0 % by the formula\n"
            "proven     messages come in order and no stage waits for ever, if an edge holds 1 "
            "message\n");
}

TEST(ScheduleCommand, ChunksAreTheFewestOfTheSchedule) {
  EXPECT_TRUE(has(printed(schedule_command, {"--schedule", "zero-bubble-v", "-p", "2", "-m", "4"}),
                  "2 stages of 2 chunks"));
  EXPECT_TRUE(has(printed(schedule_command, {"--schedule", "interleaved", "--chunks", "3"}),
                  "4 stages of 3 chunks"));
  EXPECT_TRUE(has(printed(schedule_command, {"--schedule", "zero-bubble", "--costs", "1,1,2"}),
                  "simulated, no formula for these numbers"));
}

TEST(ScheduleCommand, WritesATableThatItReadsAgainAndAPicture) {
  const files::TempFolder folder("schedule-test");
  const std::string table = folder.file("mine.csv");
  const std::string made = printed(
      schedule_command,
      {"--schedule", "gpipe", "-p", "2", "-m", "2", "--csv", table, "--svg", folder.file("t.svg")});
  EXPECT_EQ(text_in(table), "F0,F1,B0,B1\nF0,F1,B0,B1\n");
  EXPECT_TRUE(text_in(folder.file("t.svg")).starts_with("<svg "));
  const std::string again = printed(schedule_command, {"--schedule", table});
  EXPECT_TRUE(has(again, table + ": 2 stages, 2 micro-batches"));
  const std::string grid = "stage 0  F0 F1 .  .  .  B0 -- B1 --\n";
  EXPECT_TRUE(has(made, grid) && has(again, grid)) << made << again;
  EXPECT_TRUE(has(again, "no formula for these numbers"));
}

TEST(ScheduleCommand, RefusesWhatDoesNotFit) {
  const files::TempFolder folder("schedule-test");
  const std::string table = folder.file("mine.csv");
  std::ofstream(table) << "F0,B0\nF0,F1,B0,B1\n";
  const auto refused = [](const std::vector<std::string>& args, const std::string& part) {
    const std::string text = printed(schedule_command, args);
    EXPECT_TRUE(text.starts_with("refused: ") && has(text, part)) << text;
  };
  refused({"--schedule", table}, "stage 0 never does F1.");
  refused({"--schedule", table, "-p", "2"}, "no -p, -m and --chunks: the table has its own");
  refused({"--schedule", folder.file("none.csv")}, "there is no schedule");
  refused({"--schedule", folder.file("none.csv")}, "lockstep schedule --csv FILE");
  std::ofstream(folder.file("empty.csv")) << "\n";
  refused({"--schedule", folder.file("empty.csv")}, "is empty");
  refused({"--csv", ""}, "--csv wants the name of a file");
  refused({"--svg", ""}, "--svg wants the name of a file");
  refused({"--schedule", "1f2b"}, "Did you mean 1f1b?");
  refused({"-p", "0"}, "-p wants a number from 1 to 512.");
  for (const char* none : {"0", "-1"}) refused({"-m", none}, "-m wants a number from 1 to 4096.");
  refused({"--chunks", "2"}, "the schedule 1f1b cuts a stage into 1 chunk, not 2.");
  for (const char* costs : {"1,1", "1,1,1,1", "a", "0,0,0", "1,-1,1", "1;1;1", "1,1,nan"}) {
    refused({"--costs", costs}, "--costs wants seconds of forward");
  }
}

TEST(ScheduleCommand, AGridThatIsTooWideIsLeftOut) {
  const std::string text = printed(schedule_command, {"--costs", "1,1.001,1"});
  EXPECT_TRUE(has(text, "too many columns for a grid"));
  EXPECT_TRUE(has(text, "bubble     27.3 % simulated"));
}

TEST(TraceCommand, DrawsTheTraceOfARun) {
  const files::TempFolder run("trace-test");
  files::write_trace(run.file("trace.json"), {{0, "compute", "F0", "forward", 0, 1, false},
                                              {1, "compute", "F0", "forward", 1, 1, false},
                                              {0, "compute", "F0", "forward", 0, 1, true}});
  const std::string text = printed(trace_command, {run.path()});
  EXPECT_TRUE(has(text, "measured\n            computing"));
  EXPECT_TRUE(has(text, "rank 1       1.0000 s       0.0000 s   50.0 %\n")) << text;
  EXPECT_TRUE(has(text, "bubble 50.0 % of all ranks' time, 1 step\n"));
  EXPECT_TRUE(has(text, "planned\n"));
  EXPECT_TRUE(has(text, "timeline.svg\n"));
  EXPECT_TRUE(has(text_in(run.file("timeline.svg")), ">planned rank 0<"));
  EXPECT_TRUE(has(printed(trace_command, {run.path(), "--svg", run.file("mine.svg")}), "mine.svg"));
  EXPECT_EQ(text_in(run.file("mine.svg")), text_in(run.file("timeline.svg")));
}

TEST(TraceCommand, SaysWhatIsMissing) {
  const files::TempFolder run("trace-test");
  EXPECT_TRUE(has(printed(trace_command, {run.file("none")}), "there is no run "));
  EXPECT_TRUE(has(printed(trace_command, {run.path()}), "log.trace_steps"));
  files::write_trace(run.file("trace.json"), {});
  EXPECT_TRUE(has(printed(trace_command, {run.path()}), "holds no event."));
  EXPECT_FALSE(fs::exists(run.file("timeline.svg")));
}

}  // namespace
}  // namespace lockstep::cli
