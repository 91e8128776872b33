#include "lockstep/launch/failure_report.h"

#include <gtest/gtest.h>

#include <csignal>

#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

net::RankStatus failed_with(const std::string& error, int exit_code) {
  net::RankStatus status;
  status.pid = 1;
  status.error = error;
  status.exit_code = exit_code;
  return status;
}

TEST(FailureReport, SaysWhereARankWas) {
  net::RankStatus status;
  EXPECT_EQ(place_text(status), "");  // never joined: nothing is known
  status.pid = 1;
  status.phase = "start";
  EXPECT_EQ(place_text(status), " before the first step, in start");
  status.phase = "running";
  status.detail = "mine";
  EXPECT_EQ(place_text(status), ", in mine") << "a loop of the user's own tells of no steps";
  status.phase = "start";
  status.detail = "";
  status.step = 0;
  status.phase = "forward";
  status.detail = "leaf 1.0";
  EXPECT_EQ(place_text(status), " at step 0, in forward (leaf 1.0)");
}

TEST(FailureReport, TellsTheCauseFromItsEchoes) {
  const std::string abort = "rank 1 failed: loss is nan";
  const auto echo = failed_with("[rank 0 of 3] all_reduce: " + abort, 5);
  const auto cause = failed_with("loss is nan", 1);
  EXPECT_EQ(first_cause({echo, cause, echo}, abort), 1);
  EXPECT_EQ(first_cause({echo, echo, cause}, abort), 2);
  EXPECT_EQ(first_cause({echo, {}, echo}, abort), -1);  // all quote one that never spoke
  EXPECT_EQ(first_cause({{}, {}, {}}, ""), -1);
  // Without an abort, whoever spoke.
  EXPECT_EQ(first_cause({{}, {}, cause}, ""), 2);
  // A rank that fails for a reason of its own after the abort is neither cause nor echo.
  EXPECT_EQ(first_cause({failed_with("disk full", 3), cause, echo}, abort), 1);
}

TEST(FailureReport, TakesTheExitCodeOfTheRank) {
  Failure failure;
  failure.ending = {.exit_code = 0, .signal = SIGKILL};
  EXPECT_EQ(exit_code_of(failure), 4);
  failure.status = failed_with("no memory", 7);  // it spoke, and was killed while it left
  EXPECT_EQ(exit_code_of(failure), 7);
  failure.status = {};
  for (const int code : {1, 2, 3, 6, 8}) {
    failure.ending = {.exit_code = code, .signal = 0};
    EXPECT_EQ(exit_code_of(failure), code);
  }
  for (const int code : {0, 9, 127, 139}) {
    failure.ending = {.exit_code = code, .signal = 0};
    EXPECT_EQ(exit_code_of(failure), 4);
  }
}

TEST(FailureReport, NamesOneProcessThatHeldAllRanks) {
  Failure failure;
  failure.ranks = 3;
  failure.seconds = 3.26;
  failure.ending = {.exit_code = 0, .signal = SIGSEGV};
  EXPECT_EQ(death_block(failure),
            "[the process of ranks 0 to 2] died: killed by signal 11 (Segmentation fault), after "
            "3.3 s.");
}

TEST(FailureReport, ALoneRankHasNoOthers) {
  Failure failure;
  failure.rank = 0;
  failure.ranks = 1;
  failure.ending = {.exit_code = 3, .signal = 0};
  EXPECT_EQ(death_block(failure), "[rank 0 of 1] exited with code 3, after 0.0 s.");
}

TEST(FailureReport, ARanksOwnWordsAreTheBlock) {
  Failure failure;
  failure.rank = 1;
  failure.ranks = 3;
  failure.log = "runs/x/rank_0001.log";
  failure.status = failed_with("[rank 1 of 3] all_reduce: no word from rank 2\n", 5);
  EXPECT_EQ(error_block(failure),
            "[rank 1 of 3] all_reduce: no word from rank 2\n  Its log: runs/x/rank_0001.log");
}

}  // namespace
}  // namespace lockstep::launch
