#include "lockstep/train/run_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/train/progress_line.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::TempFolder;

StepReport a_report() {
  StepReport report{.step = 460,
                    .loss = 1.80771,
                    .grad_norm = 1.3456,
                    .lr = 9.46e-4,
                    .seconds = 0.0919,
                    .tokens = 2048,
                    .tokens_per_second = 22289.4,
                    .mfu = 0.612,
                    .comm_bytes = 4096,
                    .comm_seconds = 0.0919 * 0.074,
                    .comm_wait_seconds = 0.0919 * 0.074 * 0.48};
  report.memory = {4 * 1024 * 1024, 3 * 1024 * 1024, 2 * 1024 * 1024, 838861, 0, 0, 0};
  report.phases = {0.001, 0.03, 0.05, 0.002, 0.004, 0, 0.001, 0.003, 0.0009};
  return report;
}

TEST(ProgressLine, IsTheOneInTheHeader) {
  EXPECT_EQ(progress_line(a_report(), {.steps = 600, .seconds_left = 14}),
            "step 460/600 | loss 1.8077 | grad 1.346 | lr 9.46e-04 | 92 ms | 22,289 tokens/s | "
            "MFU 61 % | 9.8 MiB | comm 7.4 %, 52 % of it hidden | 0:14 left");
}

TEST(ProgressLine, SaysTheEpochFromTheSecondOn) {
  StepReport report = a_report();
  report.epoch = 2;
  const std::string line = progress_line(report, {.steps = 600});
  EXPECT_NE(line.find("step 460/600 | epoch 2 | loss"), std::string::npos) << line;
}

TEST(ProgressLine, OneRankSaysNothingOfCommunication) {
  StepReport report = a_report();
  report.comm_seconds = 0;
  EXPECT_EQ(progress_line(report, {.steps = 600}).find("comm"), std::string::npos);
}

TEST(ProgressLine, FitsTheTerminalAndKeepsWhatMattersMost) {
  for (int columns = 1; columns < 200; ++columns) {
    const std::string line =
        progress_line(a_report(), {.steps = 600, .seconds_left = 14, .columns = columns});
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    const bool has_loss = line.find("loss 1.8077") != std::string::npos;
    EXPECT_EQ(has_loss, columns >= 26) << line;
    EXPECT_NE(line.back(), '|');
  }
  EXPECT_EQ(progress_line(a_report(), {.steps = 600, .seconds_left = 14, .columns = 60}),
            "step 460/600 | loss 1.8077 | 22,289 tokens/s | 0:14 left");
}

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(RunLog, MetricsHoldEveryFigure) {
  const TempFolder folder;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  RunLog log({.folder = folder.path(), .console_fd = nowhere, .steps = 600});
  log.step(a_report());
  log.evaluation(460, 1.75);
  const auto lines = lines_of(folder.file("metrics.jsonl"));
  ASSERT_EQ(lines.size(), 2u);
  const nlohmann::json& step = lines[0];
  EXPECT_EQ(step["loss"], 1.80771);
  EXPECT_EQ(step["epoch"], 1);
  EXPECT_EQ(step["mfu"], 0.612);
  EXPECT_EQ(step["memory_bytes"]["optimizer"], 2 * 1024 * 1024);
  EXPECT_EQ(step["comm"]["bytes"], 4096);
  double sum = 0;
  for (const auto& [name, seconds] : step["phase_seconds"].items()) sum += seconds.get<double>();
  EXPECT_EQ(step["phase_seconds"].size(), 10u);
  EXPECT_NEAR(sum, 0.0919, 1e-12);
  EXPECT_EQ(lines[1], (nlohmann::json{{"step", 460}, {"val_loss", 1.75}}));
  ::close(nowhere);
}

/// Killed in step 5 after a checkpoint of step 3: each step has one line in the end.
TEST(RunLog, ARunThatGoesOnHasEachStepOnce) {
  const TempFolder folder;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const std::string path = folder.file("metrics.jsonl");
  const auto log_steps = [&](int64_t before, int64_t last) {
    RunLog log({.folder = folder.path(),
                .console_fd = nowhere,
                .steps = 6,
                .steps_before = before,
                .tensorboard = false});
    StepReport report = a_report();
    for (report.step = before + 1; report.step <= last; ++report.step) {
      log.step(report);
      if (report.step % 2 == 0) log.evaluation(report.step, 1.5);
    }
    return log.last_evaluation();
  };
  const auto steps_of = [&] {
    std::vector<int64_t> steps;
    for (const auto& line : lines_of(path)) {
      steps.push_back(line["step"].get<int64_t>() * (line.contains("val_loss") ? -1 : 1));
    }
    return steps;
  };
  log_steps(0, 5);
  std::ofstream(path, std::ios::app) << "{\"step\": 6, \"loss\": 1.";  // and no more
  EXPECT_EQ(log_steps(3, 3), 2) << "kept from before";
  EXPECT_EQ(log_steps(3, 6), 6);
  EXPECT_EQ(steps_of(), (std::vector<int64_t>{1, 2, -2, 3, 4, -4, 5, 6, -6}));
  log_steps(6, 6);  // nothing is behind
  EXPECT_EQ(steps_of().size(), 9u);
  log_steps(0, 1);  // from the beginning
  EXPECT_EQ(steps_of(), (std::vector<int64_t>{1}));
  ::close(nowhere);
}

/// An estimate from the steps made here, not from those of the run.
TEST(RunLog, TheTimeLeftIsRightBehindAResume) {
  const TempFolder folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    RunLog log({.folder = folder.path(),
                .console_fd = ends[1],
                .steps = 600,
                .steps_before = 459,
                .every = 1,
                .tensorboard = false});
    StepReport report = a_report();
    report.seconds = 1;
    log.step(report);
  }
  ::close(ends[1]);
  char text[512] = {};
  ASSERT_GT(::read(ends[0], text, sizeof text - 1), 0);
  ::close(ends[0]);
  EXPECT_NE(std::string(text).find("2:20 left"), std::string::npos) << text;
}

/// On a terminal there is one live line; a line of words ends it first.
TEST(RunLog, ATerminalHasOneLiveLineThatFits) {
  const TempFolder folder;
  int main_end = -1, terminal = -1;
  winsize size{.ws_row = 24, .ws_col = 50, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&main_end, &terminal, nullptr, nullptr, &size), 0);
  {
    RunLog log({.folder = folder.path(), .console_fd = terminal, .steps = 3, .tensorboard = false});
    StepReport report = a_report();
    for (report.step = 1; report.step < 3; ++report.step) log.step(report);
    log.say("a word");
  }
  ::close(terminal);
  std::string seen;
  char piece[512];
  for (ssize_t n; (n = ::read(main_end, piece, sizeof piece)) > 0;) seen.append(piece, n);
  ::close(main_end);
  EXPECT_EQ(seen,
            "\r\x1b[Kstep 1/3 | loss 1.8077 | 0:00 left"
            "\r\x1b[Kstep 2/3 | loss 1.8077 | 0:00 left"
            "\r\na word\r\n");
}

TEST(RunLog, BAD_8_AFullDiskIsKeptAsTheFailureNamingFileAndBytes) {
  const TempFolder folder;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  RunLog log({.folder = folder.path(), .console_fd = nowhere, .steps = 600});
  log.step(a_report());
  EXPECT_EQ(log.failure(), "");
  const size_t before = on_disk::get(folder.file("metrics.jsonl")).size();
  {
    const on_disk::FileSizeLimit full(before + 10);
    log.step(a_report());
  }
  EXPECT_NE(log.failure().find(folder.file("metrics.jsonl")), std::string::npos) << log.failure();
  EXPECT_NE(log.failure().find("bytes cannot be written"), std::string::npos) << log.failure();
  log.step(a_report());  // nothing more is written: the file has no gap
  EXPECT_EQ(lines_of(folder.file("metrics.jsonl")).size(), 1u);
  ::close(nowhere);
}

}  // namespace
}  // namespace lockstep
