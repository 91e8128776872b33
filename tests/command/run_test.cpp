// `lockstep run` as a user runs it: any program as ranks, its words, its end, what is left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Words run_words(int ranks, const Words& flags, const Words& program) {
  Words words = {"lockstep", "run", "-n", std::to_string(ranks)};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back("--");
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

CommandResult run(int ranks, const Words& flags, const Words& program) {
  return Command(run_words(ranks, flags, program)).wait();
}

CommandResult run_shell(int ranks, const Words& flags, const std::string& script) {
  return run(ranks, flags, {"sh", "-c", script});
}

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// ---- places and words

TEST(Run, RanksFindTheirPlaceInTorchrunsVariables) {
  const CommandResult result = run_shell(
      2, {"--max-restarts", "4"},
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $ROLE_RANK "
      "$ROLE_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS; "
      "test $MASTER_PORT -gt 1023 && test -n \"$TORCHELASTIC_RUN_ID\"");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[rank 0] 0 2 0 2 0 0 2 127.0.0.1 0 4\n"));
  EXPECT_THAT(result.out, HasSubstr("[rank 1] 1 2 1 2 0 1 2 127.0.0.1 0 4\n"));
}

TEST(Run, LinesAreWholeAndNoneIsLost) {
  // Two ranks write at full speed, in pieces that end in the middle of lines.
  constexpr int kLines = 20000;
  const CommandResult result = run_shell(
      2, {}, "i=0; seq -f \"r$RANK-%06.0f-abcdefghijklmnopqrstuvwxyz\" 20000; printf 'the end'");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  int next[2] = {1, 1};
  int ends = 0;
  for (const std::string& line : lines_of(result.out)) {
    const int rank = line.substr(0, 9) == "[rank 1] " ? 1 : 0;
    if (line.substr(9) == "the end") {
      ++ends;
      continue;
    }
    char wanted[64];
    std::snprintf(wanted, sizeof wanted, "[rank %d] r%d-%06d-abcdefghijklmnopqrstuvwxyz", rank,
                  rank, next[rank]++);
    ASSERT_EQ(line, wanted);
  }
  EXPECT_EQ(next[0], kLines + 1);
  EXPECT_EQ(next[1], kLines + 1);
  EXPECT_EQ(ends, 2);
  EXPECT_TRUE(result.out.ends_with("the end\n"));
}

TEST(Run, AnyBytesComeThroughAndALoneRankIsNotMarked) {
  const std::string script = "printf 'a\\000b\\377c\\r\\n'; printf 'x' >&2";
  const CommandResult alone = run_shell(1, {}, script);
  EXPECT_EQ(alone.out, std::string("a\0b\377c\r\n", 7));
  EXPECT_EQ(alone.err, "x");
  const CommandResult two = run_shell(2, {}, "test $RANK = 1 || exit 0; " + script);
  EXPECT_EQ(two.out, std::string("[rank 1] a\0b\377c\r\n", 16));
  EXPECT_EQ(two.err, "[rank 1] x\n");
}

TEST(Run, LogsHoldEveryRanksWordsAndRankZeroIsShown) {
  const TempFolder folder;
  const std::string script = "echo out $RANK; echo err $RANK >&2";
  const CommandResult quiet = run_shell(2, {"--log-dir", folder.file("a/b")}, script);
  EXPECT_EQ(quiet.out, "out 0\n");
  EXPECT_EQ(quiet.err, "err 0\n");
  EXPECT_EQ(text_of(folder.file("a/b/rank_0001.log")), "out 1\nerr 1\n");
  const std::string first = text_of(folder.file("a/b/rank_0000.log"));
  EXPECT_THAT(first, HasSubstr("out 0\n"));
  EXPECT_THAT(first, HasSubstr("err 0\n"));

  const CommandResult teed = run_shell(2, {"--log-dir", folder.path(), "--tee"}, script);
  for (const char* line : {"[rank 0] out 0\n", "[rank 1] out 1\n"}) {
    EXPECT_THAT(teed.out, HasSubstr(line));
  }
  EXPECT_THAT(text_of(folder.file("rank_0001.log")), HasSubstr("err 1\n"));
}

/// What an earlier job left would be read as this one's; what the user put there stays.
TEST(Run, ALogFolderHoldsOneJob) {
  const TempFolder folder;
  fs::create_directories(folder.file("restart_1/kept"));
  for (const char* name : {"rank_0002.log", "last_operations.txt", "restart_1/rank_0001.log",
                           "rank_2.txt", "rank_.log", "restart_1/kept/rank_0000.log"}) {
    std::ofstream(folder.file(name)) << "earlier\n";
  }
  fs::create_directories(folder.file("restart_2"));
  EXPECT_EQ(run_shell(2, {"--log-dir", folder.path()}, "echo new").exit_code, 0);
  EXPECT_EQ(text_of(folder.file("rank_0001.log")), "new\n");
  for (const char* name :
       {"rank_0002.log", "last_operations.txt", "restart_1/rank_0001.log", "restart_2"}) {
    EXPECT_FALSE(fs::exists(folder.file(name))) << name;
  }
  for (const char* name : {"rank_2.txt", "rank_.log", "restart_1/kept/rank_0000.log"}) {
    EXPECT_EQ(text_of(folder.file(name)), "earlier\n") << name;
  }
}

/// A launcher that is started without a stdout must not give its number to something else.
TEST(Run, AClosedOutputIsAFailureNotAHang) {
  const std::string own =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lockstep").string();
  const CommandResult result = lockstep(
      {"run", "-n", "1", "--", "/bin/sh", "-c", "exec '" + own + "' run -n 2 -- /bin/echo hi >&-"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cannot write"));
}

TEST(Run, AnOutputThatNobodyTakesIsAFailure) {
  // As with `lockstep run ... | head -1`: the reader is gone before the last word.
  const CommandResult result =
      Command(
          {"/bin/sh", "-c",
           "{ " + beside("lockstep") + " run -n 2 -- seq 200000; echo code $? >&2; } | head -1"})
          .wait();
  EXPECT_THAT(result.err, HasSubstr("cannot write what ranks wrote to stdout: Broken pipe"));
  EXPECT_THAT(result.err, HasSubstr("code 3"));
}

// ---- failures

TEST(Run, EL_4_TheRankThatExitsIsTheFirstCause) {
  const CommandResult result = run_shell(
      4, {}, "test $RANK = 2 || exec sleep 100; echo one; echo my last words >&2; exit 7");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_LT(result.seconds, 5);
  EXPECT_THAT(result.err, ContainsRegex("\\[rank 2 of 4\\] exited with code 7, after [0-9.]+ s.\n"
                                        "  Ranks 0, 1 and 3 were ended by the launcher.\n"
                                        "  Its last lines:\n"));
  EXPECT_THAT(result.err, HasSubstr("\n    my last words"));
}

TEST(Run, EL_4_TheRankThatCrashesIsTheFirstCause) {
  const TempFolder folder;
  const CommandResult result =
      run(4, {"--log-dir", folder.path()}, {beside("test_rank"), "segfault", "2"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_LT(result.seconds, 5);
  EXPECT_THAT(result.err,
              HasSubstr("[rank 2 of 4] died: killed by signal 11 (Segmentation fault)"));
  EXPECT_THAT(result.err, HasSubstr("Ranks 0, 1 and 3 were ended by the launcher. Its log: " +
                                    folder.file("rank_0002.log") + "\n    rank 2 is here\n"));
  EXPECT_THAT(text_of(folder.file("last_operations.txt")),
              HasSubstr("rank 2 before the first step, in start:\n  barrier on \"world\" #1\n"));
}

TEST(Run, COLL_7_AStoppedRankIsMissedAndNamed) {
  const TempFolder folder;
  const CommandResult result = run(4, {"--log-dir", folder.path(), "--timeout-s", "1"},
                                   {beside("test_rank"), "all_reduces", "3", "1"});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_LT(result.seconds, 1 + 1 + 0.5) << "half a second to start";
  EXPECT_THAT(result.err,
              ContainsRegex("all_reduce on \"world\" #3: no word from rank 1 for 1.0 s"));
  EXPECT_THAT(result.err, ContainsRegex("ranks [0-3] and [0-3] have arrived"));
  EXPECT_THAT(result.err, HasSubstr("The call is all_reduce of 100 float32 (sum)."));
  EXPECT_THAT(result.err, HasSubstr("Rank 1 was last seen in start; its last call: all_reduce of "
                                    "100 float32 (sum) on \"world\" #2."));
  const std::string record = text_of(folder.file("last_operations.txt"));
  for (const char* rank : {"rank 0 ", "rank 1 ", "rank 2 ", "rank 3 "}) {
    EXPECT_THAT(record, HasSubstr(rank));
  }
  EXPECT_THAT(record, HasSubstr("  all_reduce of 100 float32 (sum) on \"world\" #3\n"));
  const CommandResult bare =
      run(3, {"--timeout-s", "0.3"}, {beside("test_rank"), "all_reduces", "30", "2"});
  EXPECT_THAT(bare.err, HasSubstr("The last operations of every rank:\n    rank 0 "));
  EXPECT_THAT(bare.err, Not(HasSubstr("#25\n"))) << "shortened";
}

TEST(Run, ALoneRankThatIsStoppedEndsTheJob) {
  const CommandResult result = run_shell(1, {"--timeout-s", "0.5"}, "kill -STOP $$; exit 0");
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_LT(result.seconds, 0.5 + 1 + 0.5) << "half a second to start";
  EXPECT_THAT(result.err, StartsWith("[rank 0 of 1] was stopped (SIGSTOP) for 0."));
  EXPECT_THAT(result.err, HasSubstr("; the timeout is 0.5 s."));
}

TEST(Run, RestartsKeepCountLogsAndReports) {
  const TempFolder folder;
  const CommandResult result =
      run_shell(2, {"--max-restarts", "3", "--log-dir", folder.path()},
                "echo start $TORCHELASTIC_RESTART_COUNT $LOCKSTEP_RESTART_COUNT; "
                "test $TORCHELASTIC_RESTART_COUNT = 2 || test $RANK = 0 || exit 7; sleep 0.05");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("starting all ranks again: restart 1 of 3"));
  EXPECT_THAT(result.err, HasSubstr("starting all ranks again: restart 2 of 3"));
  EXPECT_THAT(result.err, Not(HasSubstr("restart 3 of 3")));
  EXPECT_THAT(result.err, HasSubstr("[rank 1 of 2] exited with code 7"));
  EXPECT_EQ(text_of(folder.file("rank_0001.log")), "start 0 0\n");
  EXPECT_EQ(text_of(folder.file("restart_2/rank_0001.log")), "start 2 2\n");

  EXPECT_EQ(
      run_shell(2, {"--max-restarts", "1"}, "exit $((6 + TORCHELASTIC_RESTART_COUNT))").exit_code,
      7);
  const CommandResult usage = run_shell(2, {"--max-restarts", "3"}, "exit 2");
  EXPECT_EQ(usage.exit_code, 2);
  EXPECT_THAT(usage.err, Not(HasSubstr("restart 1")));
}

TEST(Run, ASignalByTheUserIsNoReasonToStartAgain) {
  const TempFolder folder;
  Command job(run_words(2, {"--max-restarts", "3"},
                        {"sh", "-c", "echo > " + folder.file("r$RANK") + "; exec sleep 100"}));
  ASSERT_TRUE(
      eventually([&] { return fs::exists(folder.file("r0")) && fs::exists(folder.file("r1")); }));
  ::kill(job.pid(), SIGTERM);
  const CommandResult result = job.wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(result.err, "SIGTERM: the job stopped the ranks before they could save.\n");
}

TEST(Run, SignalsThatWouldEndARankAreNotPassedOn) {
  const TempFolder folder;
  const std::string go = folder.file("go");
  Command job(
      run_words(2, {},
                {"sh", "-c",
                 "test $RANK = 0 || trap 'echo caught' USR1 USR2; echo > " + folder.file("r$RANK") +
                     "; while ! test -e " + go + "; do sleep 0.02; done"}));
  ASSERT_TRUE(
      eventually([&] { return fs::exists(folder.file("r0")) && fs::exists(folder.file("r1")); }));
  ::kill(job.pid(), SIGUSR1);
  ::kill(job.pid(), SIGUSR2);
  ASSERT_TRUE(eventually(
      [&] { return job.output_so_far().find("caught\n[rank 1] caught") != std::string::npos; }));
  std::ofstream(go) << "now";
  const CommandResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("SIGUSR1: not passed on to rank 0, which would end by it."));
}

TEST(Run, SigquitEndsAtOnce) {
  const TempFolder folder;
  Command job(run_words(2, {},
                        {"sh", "-c",
                         "trap '' TERM INT QUIT; echo > " + folder.file("r$RANK") +
                             "; while true; do sleep 1; done"}));
  ASSERT_TRUE(
      eventually([&] { return fs::exists(folder.file("r0")) && fs::exists(folder.file("r1")); }));
  ::kill(job.pid(), SIGQUIT);
  EXPECT_EQ(job.wait().exit_code, 131);
}

// ---- what cannot be started, and odd surroundings

TEST(Run, BAD_7_WhatCannotBeStartedIsRefused) {
  const TempFolder folder;
  std::ofstream(folder.file("text")) << "no program";
  const auto refused = [](const Words& arguments, const std::string& words) {
    const CommandResult result = lockstep(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "");
  };
  refused({"run", "-n", "2", "--", folder.file("none")}, "there is no such program");
  refused({"run", "-n", "2", "--", "lockstep-no-such-program"}, "no such program in PATH");
  refused({"run", "-n", "2", "--", folder.file("text")}, "it may not be executed");
  refused({"run", "-n", "2", "--", folder.path()}, "it is a folder");
  refused({"run", "-n", "0", "--", "true"}, "-n 0");
  refused({"run", "-n", "-3", "--", "true"}, "-n -3");
  refused({"run", "-n", "two", "--", "true"}, "whole number");
  refused({"run", "-n", "2", "true"}, "`--`");
  refused({"run", "-n", "2", "--"}, "what should it run?");
  refused({"run"}, "what should it run?");
  refused({"run", "--tee", "--", "true"}, "--log-dir");
  refused({"run", "--timeout-s", "0", "--", "true"}, "timeout-s");
  refused({"run", "--max-restarts", "-1", "--", "true"}, "max-restarts");
  refused({"run", "--engine", "mpi", "--", "true"}, "engine");
  refused({"run", "--log-dri", "x", "--", "true"}, "--log-dir");
}

TEST(Run, BAD_7_ALogFolderThatCannotBeIsRefused) {
  const TempFolder folder;
  std::ofstream(folder.file("file")) << "in the way";
  const CommandResult result = run(2, {"--log-dir", folder.file("file/logs")}, {"true"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("cannot make " + folder.file("file/logs")));
}

TEST(Run, BAD_9_TwoJobsAtOnceAreStrangers) {
  const Words words = run_words(2, {}, {beside("test_rank"), "all_reduces", "200", "-1"});
  Command first(words);
  Command second(words);
  EXPECT_EQ(first.wait().exit_code, 0);
  EXPECT_EQ(second.wait().exit_code, 0);
}

TEST(Run, BAD_10_OddSurroundingsAreFine) {
  const TempFolder folder;
  const std::string spaced = folder.file("a program with spaces");
  fs::copy_file(beside("test_rank"), spaced);
  // No HOME, no TERM, no terminal, a locale with a decimal comma.
  const CommandResult result = Command({"/usr/bin/env",
                                        "-u",
                                        "HOME",
                                        "-u",
                                        "TERM",
                                        "LC_ALL=de_DE.UTF-8",
                                        "LANG=de_DE.UTF-8",
                                        beside("lockstep"),
                                        "run",
                                        "-n",
                                        "2",
                                        "--timeout-s",
                                        "20.5",
                                        "--log-dir",
                                        folder.file("my logs"),
                                        "--",
                                        spaced,
                                        "all_reduces",
                                        "3",
                                        "-1"})
                                   .wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

TEST(Run, BAD_10_TheSharedHeapIsNotInDevShm) {
  // More than the 64 MiB that containers give to /dev/shm.
  const CommandResult result = run(2, {}, {beside("test_rank"), "hold_heap", "80"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[rank 0] /memfd:lockstep"));
  EXPECT_THAT(result.out, Not(HasSubstr("/dev/shm")));
}

TEST(Run, BAD_10_SixtyFourRanksIn256OpenFiles) {
  const CommandResult result =
      Command({"/bin/sh", "-c",
               "ulimit -n 256; exec " + beside("lockstep") + " run -n 64 -- sh -c 'echo here'"})
          .wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(lines_of(result.out).size(), 64u);
  const CommandResult too_few =
      Command({"/bin/sh", "-c",
               "ulimit -n 64; exec " + beside("lockstep") + " run -n 64 -- sh -c 'exec sleep 50'"})
          .wait();
  EXPECT_EQ(too_few.exit_code, 3);
  EXPECT_THAT(too_few.err, HasSubstr("ulimit -n"));
}

// ---- nothing is left behind

/// Processes whose environment has `mark`, those that are gone but not waited for left out.
std::vector<pid_t> processes_marked(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (text_of(entry.path() / "environ").find(mark) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  return found;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.insert(entry.path().filename());
  }
  return names;
}

bool has_guardian(pid_t launcher) {
  for (const pid_t child : children_of(launcher)) {
    if (text_of("/proc/" + std::to_string(child) + "/comm") == "lockstep-guard\n") return true;
  }
  return false;
}

bool signal_is_pending(pid_t pid, int signal) {
  const std::string status = text_of("/proc/" + std::to_string(pid) + "/status");
  const size_t at = status.find("ShdPnd:");
  if (at == std::string::npos) return false;
  return (std::stoull(status.substr(at + 7), nullptr, 16) >> (signal - 1) & 1) != 0;
}

/// One end of a job, of seven kinds; returns when the launcher is gone.
void end_a_job(int kind, const std::string& mark, const std::string& temp_folder) {
  const TempFolder folder;
  const Words environment = {mark, "TMPDIR=" + temp_folder};
  // Every rank has a child of its own. Rank 1 does what the kind says; those that stay say so.
  const std::string stay = "echo > " + folder.file("r$RANK") + "; sleep 100; true";
  const std::string scripts[] = {"sleep 100 & exit 0",
                                 "sleep 100 & test $RANK = 1 && exit 7; sleep 100; true",
                                 "sleep 100 & test $RANK = 1 && kill -9 $$; sleep 100; true",
                                 "sleep 100 & test $RANK = 1 && kill -SEGV $$; sleep 100; true",
                                 stay,
                                 "trap '' INT; " + stay};
  Command job(run_words(2, {}, {"sh", "-c", scripts[std::min(kind, 5)]}), environment);
  if (kind >= 4) {
    ASSERT_TRUE(
        eventually([&] { return fs::exists(folder.file("r0")) && fs::exists(folder.file("r1")); }));
  }
  if (kind == 4) ::kill(job.pid(), SIGTERM);
  if (kind == 5) {
    ::kill(job.pid(), SIGINT);
    // The second may not fall together with the first: signals of one kind do.
    ASSERT_TRUE(eventually([&] { return !signal_is_pending(job.pid(), SIGINT); }));
    ::kill(job.pid(), SIGINT);
  }
  if (kind == 6) {
    ASSERT_TRUE(eventually([&] { return has_guardian(job.pid()); }));
    ::kill(job.pid(), SIGKILL);
  }
  const int codes[] = {0, 7, 4, 4, 143, 130, 137};
  EXPECT_EQ(job.wait().exit_code, codes[kind]) << "kind " << kind;
}

void expect_nothing_left(int ends) {
  const TempFolder temp_folder;
  const std::string mark = "LOCKSTEP_TEST_MARK=" + temp_folder.path();
  const std::set<std::string> shm_before = names_in("/dev/shm");
  for (int i = 0; i < ends; ++i) {
    end_a_job(i % 7, mark, temp_folder.path());
    // Processes that were killed need a moment to be gone.
    ASSERT_TRUE(eventually([&] { return processes_marked(mark).empty(); })) << "end " << i;
  }
  EXPECT_EQ(names_in("/dev/shm"), shm_before);
  EXPECT_THAT(names_in(temp_folder.path()), ::testing::IsEmpty());
}

TEST(Run, NoEndLeavesAnythingBehind) { expect_nothing_left(21); }

TEST(LongRun, AHundredEndsLeaveNothingBehind) { expect_nothing_left(105); }

}  // namespace
}  // namespace lockstep::testing
