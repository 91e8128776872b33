// Jobs whose ranks are this very program, started again with the name of a part to play.

#include "lockstep/launch/job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "lockstep/base/str.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/rank_environment.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/net/world.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

// ---- the parts that ranks play

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int my_rank() {
  return variable("LOCKSTEP_RANK").empty() ? 0 : std::stoi(variable("LOCKSTEP_RANK"));
}

std::shared_ptr<net::Endpoint> join() {
  return net::Endpoint::join(net::Region::attach(std::stoi(variable("LOCKSTEP_REGION_FD"))),
                             my_rank(), /*direct_memory=*/false);
}

void wait_for_everybody(const net::Region& region) {
  for (int rank = 0; rank < region.ranks(); ++rank) {
    while (region.status(rank).pid == 0) std::this_thread::yield();
  }
}

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

/// What a rank does that waits for a peer: it is told of the abort, and quotes it.
int wait_for_abort(net::Endpoint& endpoint) {
  while (!endpoint.region().aborted()) std::this_thread::yield();
  endpoint.fail(
      base::str("[rank ", endpoint.rank(), "] all_reduce: ", endpoint.region().abort_message()), 5);
  return 5;
}

int print_place(const Arguments& args) {
  std::ofstream file(base::str(args[0], "/place_", my_rank()));
  for (const char* name :
       {"LOCKSTEP_ENGINE", "LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE", "LOCKSTEP_TIMEOUT_S",
        "LOCKSTEP_OVERSUBSCRIBED", "LOCKSTEP_REGION_FD", "LOCKSTEP_CONSOLE_FD", "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS", "ATEN_CPU_CAPABILITY", "LOCKSTEP_TEST_MARK"}) {
    file << name << "=" << variable(name) << "\n";
  }
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) file << "CORES=" << core << "\n";
  }
  char byte = 0;
  file << "STDIN=" << read(STDIN_FILENO, &byte, 1) << "\n";
  return 0;
}

int speak(const Arguments&) {
  std::printf("stdout of %d\n", my_rank());
  std::fprintf(stderr, "stderr of %d\n", my_rank());
  const std::string console = variable("LOCKSTEP_CONSOLE_FD");
  if (!console.empty()) dprintf(std::stoi(console), "console of %d\n", my_rank());
  return 0;
}

int exit_with(const Arguments& args) { return std::stoi(args.at(my_rank())); }

/// args: rank, code. That rank says a word and leaves; the others notice nothing.
int one_exits(const Arguments& args) {
  if (my_rank() != std::stoi(args[0])) wait_for_ever();
  std::fprintf(stderr, "first word\nlast word\n");
  return std::stoi(args[1]);
}

/// args: rank, signal. That rank is struck in step 12; the others wait for it in a collective.
int one_is_struck(const Arguments& args) {
  const auto endpoint = join();
  if (my_rank() != std::stoi(args[0])) return wait_for_abort(*endpoint);
  wait_for_everybody(endpoint->region());
  endpoint->set_status(12, "backward", "bucket 5");
  std::signal(std::stoi(args[1]), SIG_DFL);
  raise(std::stoi(args[1]));
  return 0;
}

/// args: rank, exit code. That rank reports an error, and is the last to be gone.
int one_fails(const Arguments& args) {
  const auto endpoint = join();
  if (my_rank() != std::stoi(args[0])) return wait_for_abort(*endpoint);
  wait_for_everybody(endpoint->region());
  endpoint->fail("loss is nan", std::stoi(args[1]));
  for (int rank = 0; rank < endpoint->size(); ++rank) {
    while (endpoint->region().status(rank).error.empty()) std::this_thread::yield();
  }
  return std::stoi(args[1]);
}

/// args: rank. That rank reports an error of code 6; the others crash on hearing of it.
int others_crash(const Arguments& args) {
  const auto endpoint = join();
  if (my_rank() == std::stoi(args[0])) {
    wait_for_everybody(endpoint->region());
    endpoint->fail("the file is cut short", 6);
    wait_for_ever();
  }
  while (!endpoint->region().aborted()) std::this_thread::yield();
  std::signal(SIGABRT, SIG_DFL);
  abort();
}

/// args: rank. A peer reports that rank's death before the launcher can have seen it.
int one_dies_unseen(const Arguments& args) {
  const auto endpoint = join();
  wait_for_everybody(endpoint->region());
  if (my_rank() == std::stoi(args[0])) {
    while (!endpoint->region().aborted()) std::this_thread::yield();
    raise(SIGKILL);
  }
  endpoint->fail("all_reduce: rank " + args[0] + " is gone", 5);
  return 5;
}

/// Leaves in the middle of the job, in good cheer.
int one_deserts(const Arguments& args) {
  const auto endpoint = join();
  if (my_rank() != std::stoi(args[0])) return wait_for_abort(*endpoint);
  wait_for_everybody(endpoint->region());
  return 0;
}

/// args: rank. That rank is stopped; once it is, the next one gives up waiting for it.
int one_is_stopped(const Arguments& args) {
  const auto endpoint = join();
  const int victim = std::stoi(args[0]);
  wait_for_everybody(endpoint->region());
  if (my_rank() == victim) raise(SIGSTOP);
  if (my_rank() != (victim + 1) % endpoint->size()) return wait_for_abort(*endpoint);
  const std::string stat = base::str("/proc/", endpoint->region().status(victim).pid, "/stat");
  for (char state = ' '; state != 'T';) {
    std::string text;
    std::getline(std::ifstream(stat), text);
    state = text.at(text.rfind(')') + 2);
  }
  endpoint->fail("no word from rank " + args[0], 5);
  return 5;
}

/// args: rank. That rank is struck after a barrier that all have passed.
int one_is_struck_after_a_barrier(const Arguments& args) {
  const auto endpoint = join();
  endpoint->world()->barrier();
  endpoint->set_status(0, "forward");
  if (my_rank() != std::stoi(args[0])) return wait_for_abort(*endpoint);
  for (int rank = 0; rank < endpoint->size(); ++rank) {
    while (endpoint->region().status(rank).step < 0) std::this_thread::yield();
  }
  raise(SIGKILL);
  return 0;
}

int one_fails_others_are_deaf(const Arguments& args) {
  std::signal(SIGTERM, SIG_IGN);
  const auto endpoint = join();
  wait_for_everybody(endpoint->region());
  if (my_rank() == std::stoi(args[0])) return 9;
  wait_for_ever();
}

volatile std::sig_atomic_t stop_asked = 0;

/// Rank 0 sends SIGINT to the launcher; all leave with the code in args when it is passed on.
int leave_on_request(const Arguments& args) {
  std::signal(SIGINT, [](int) { stop_asked = 1; });
  const auto endpoint = join();
  wait_for_everybody(endpoint->region());
  if (my_rank() == 0) kill(getppid(), SIGINT);
  while (stop_asked == 0) std::this_thread::yield();
  endpoint->finish();
  return std::stoi(args[0]);
}

/// The same, but the first request is not heard: the second one has to end it.
int ignore_requests(const Arguments& args) {
  std::signal(SIGINT, [](int) { stop_asked = 1; });
  std::signal(SIGTERM, SIG_IGN);
  const auto endpoint = join();
  wait_for_everybody(endpoint->region());
  const int second = std::stoi(args[0]);
  if (my_rank() == 0) kill(getppid(), SIGINT);
  while (stop_asked == 0) std::this_thread::yield();
  if (my_rank() == 0 && second != 0) kill(getppid(), second);
  wait_for_ever();
}

/// The rank's SIGINT is left at its default: it dies of the signal that is passed on.
int die_of_request(const Arguments&) {
  std::signal(SIGINT, SIG_DFL);
  const auto endpoint = join();
  wait_for_everybody(endpoint->region());
  if (my_rank() != 0) return wait_for_abort(*endpoint);
  kill(getppid(), SIGINT);
  wait_for_ever();
}

/// args: a descriptor. Starts a process of its own that holds it open, then fails.
int leave_a_child(const Arguments& args) {
  if (fork() == 0) wait_for_ever();
  close(std::stoi(args[0]));
  return 3;
}

/// args: a descriptor. Says through it that it runs, then stays.
int hold(const Arguments& args) {
  [[maybe_unused]] const auto written = write(std::stoi(args[0]), "x", 1);
  wait_for_ever();
}

const std::map<std::string, int (*)(const Arguments&)>& parts() {
  static const std::map<std::string, int (*)(const Arguments&)> all = {
      {"print_place", print_place},
      {"speak", speak},
      {"exit_with", exit_with},
      {"one_exits", one_exits},
      {"one_is_struck", one_is_struck},
      {"one_fails", one_fails},
      {"others_crash", others_crash},
      {"one_dies_unseen", one_dies_unseen},
      {"one_deserts", one_deserts},
      {"one_is_stopped", one_is_stopped},
      {"one_is_struck_after_a_barrier", one_is_struck_after_a_barrier},
      {"one_fails_others_are_deaf", one_fails_others_are_deaf},
      {"leave_on_request", leave_on_request},
      {"ignore_requests", ignore_requests},
      {"die_of_request", die_of_request},
      {"leave_a_child", leave_a_child},
      {"hold", hold},
  };
  return all;
}

// ---- the tests' side

std::string this_program() { return fs::read_symlink("/proc/self/exe").string(); }

JobOptions job_of(const std::string& part, const Arguments& args, int ranks) {
  JobOptions options{.command = {this_program(), "--part", part}, .ranks = ranks};
  options.command.insert(options.command.end(), args.begin(), args.end());
  return options;
}

JobResult play(const std::string& part, const Arguments& args, int ranks) {
  return run_job(job_of(part, args, ranks));
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "lockstep-launch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string text_of(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    read_end = ends[0];
    write_end = ends[1];
    fcntl(read_end, F_SETFD, FD_CLOEXEC);
  }
  ~Pipe() {
    close(read_end);
    if (write_end >= 0) close(write_end);
  }
  void close_write_end() {
    close(write_end);
    write_end = -1;
  }
  /// The end of the pipe comes: nobody holds its other end any more.
  bool comes_to_its_end() const {
    char byte = 0;
    pollfd wanted{read_end, POLLIN, 0};
    return poll(&wanted, 1, /*milliseconds=*/5000) == 1 && read(read_end, &byte, 1) == 0;
  }
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "not in: " << text << "\nlooked for: " << part;
}

TEST(Job, EndsWithZeroWhenEveryRankDoes) {
  for (const int ranks : {1, 2, 3}) {
    const JobResult result = play("exit_with", {"0", "0", "0"}, ranks);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_EQ(result.error, "");
  }
}

TEST(Job, TellsEachRankItsPlace) {
  Folder folder;
  JobOptions options = job_of("print_place", {folder.path()}, 3);
  options.timeout_s = 2.5;
  options.log_folder = folder.path();
  setenv("OMP_NUM_THREADS", "5", 1);       // the user's word stands
  setenv("LOCKSTEP_CONSOLE_FD", "77", 1);  // an outer job's does not
  setenv("LOCKSTEP_TEST_MARK", "a=b", 1);
  unsetenv("OPENBLAS_NUM_THREADS");
  unsetenv("ATEN_CPU_CAPABILITY");
  const int own_stdin = dup(STDIN_FILENO);
  const int full = open("/proc/self/exe", O_RDONLY);  // something that could be read
  dup2(full, STDIN_FILENO);
  close(full);
  const JobResult result = run_job(options);
  dup2(own_stdin, STDIN_FILENO);
  close(own_stdin);
  setenv("OMP_NUM_THREADS", "1", 1);
  unsetenv("LOCKSTEP_CONSOLE_FD");
  unsetenv("LOCKSTEP_TEST_MARK");
  ASSERT_EQ(result.exit_code, 0) << result.error;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string place = folder.text_of(base::str("place_", rank));
    expect_contains(place, "LOCKSTEP_ENGINE=shm\n");
    expect_contains(place, base::str("LOCKSTEP_RANK=", rank, "\n"));
    expect_contains(place, "LOCKSTEP_WORLD_SIZE=3\n");
    expect_contains(place, "LOCKSTEP_TIMEOUT_S=2.5\n");
    expect_contains(place, "OMP_NUM_THREADS=5\n");
    expect_contains(place, "OPENBLAS_NUM_THREADS=1\n");
    expect_contains(place, base::str("ATEN_CPU_CAPABILITY=", best_cpu_capability(), "\n"));
    expect_contains(place, "LOCKSTEP_TEST_MARK=a=b\n");
    expect_contains(place, "STDIN=0\n");
    expect_contains(
        place, base::str("LOCKSTEP_OVERSUBSCRIBED=", allowed_cores().size() < 3 ? 1 : 0, "\n"));
    EXPECT_EQ(place.find("LOCKSTEP_REGION_FD=\n"), std::string::npos);
    EXPECT_EQ(place.find("LOCKSTEP_CONSOLE_FD=\n") == std::string::npos, rank == 0);
    EXPECT_EQ(place.find("LOCKSTEP_CONSOLE_FD=77\n"), std::string::npos);
  }
}

TEST(Job, BindsRanksToCoresOfTheirOwnWhereThereAreEnough) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  const auto bound_to = [](const Folder& folder, int rank) {
    std::istringstream lines(folder.text_of(base::str("place_", rank)));
    std::vector<int> bound;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("CORES=")) bound.push_back(std::stoi(line.substr(6)));
    }
    return bound;
  };
  Folder two;
  ASSERT_EQ(play("print_place", {two.path()}, 2).exit_code, 0);
  EXPECT_EQ(bound_to(two, 0), std::vector<int>{cores_of_ranks(2)[0]});
  EXPECT_EQ(bound_to(two, 1), std::vector<int>{cores_of_ranks(2)[1]});
  Folder one;
  ASSERT_EQ(play("print_place", {one.path()}, 1).exit_code, 0);
  EXPECT_EQ(bound_to(one, 0), cores);
  Folder many;
  const int more = static_cast<int>(cores.size()) + 1;
  if (more > 9) return;
  ASSERT_EQ(play("print_place", {many.path()}, more).exit_code, 0);
  EXPECT_EQ(bound_to(many, 1), cores);
}

TEST(Job, OneProcessHoldsAllRanksOfTheThreadsEngine) {
  Folder folder;
  JobOptions options = job_of("print_place", {folder.path()}, 3);
  options.engine = "threads";
  ASSERT_EQ(run_job(options).exit_code, 0);
  const std::string place = folder.text_of("place_0");
  expect_contains(place, "LOCKSTEP_ENGINE=threads\nLOCKSTEP_RANK=\nLOCKSTEP_WORLD_SIZE=3\n");
  EXPECT_EQ(place.find("LOCKSTEP_REGION_FD=\n"), std::string::npos) << "ranks report there too";
  EXPECT_FALSE(fs::exists(folder.path() + "/place_1"));
}

TEST(Job, SendsWordsWhereTheyBelong) {
  Folder folder;
  JobOptions options = job_of("speak", {}, 2);
  options.log_folder = folder.path();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const JobResult result = run_job(options);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "stdout of 0\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "console of 0\n");
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(folder.text_of("rank_0000.log"), "stderr of 0\n");
  const std::string other = folder.text_of("rank_0001.log");
  expect_contains(other, "stdout of 1\n");
  expect_contains(other, "stderr of 1\n");

  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  play("speak", {}, 2);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "stdout of 0\n");
  const std::string inherited = testing::internal::GetCapturedStderr();
  for (const char* words : {"stderr of 0\n", "stderr of 1\n", "stdout of 1\n"}) {
    expect_contains(inherited, words);
  }
}

TEST(Job, ReportsTheRankThatExitedWithACode) {
  Folder folder;
  JobOptions options = job_of("one_exits", {"2", "7"}, 4);
  options.log_folder = folder.path();
  JobResult result;
  EXPECT_LT(seconds_of([&] { result = run_job(options); }), 5);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_TRUE(result.error.starts_with("[rank 2 of 4] exited with code 7, after ")) << result.error;
  expect_contains(result.error,
                  "\n  Ranks 0, 1 and 3 were ended by the launcher. Its log: " + folder.path() +
                      "/rank_0002.log\n    first word\n    last word");
}

TEST(Job, ACodeThatTheTableDoesNotKnowIsADeath) {
  EXPECT_EQ(play("exit_with", {"0", "0", "42"}, 3).exit_code, 4);
}

TEST(Job, ReportsTheRankThatWasKilled) {
  for (const int victim : {0, 1, 2}) {
    JobResult result;
    const Arguments args = {std::to_string(victim), std::to_string(SIGKILL)};
    EXPECT_LT(seconds_of([&] { result = play("one_is_struck", args, 3); }), 5);
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_TRUE(result.error.starts_with(
        base::str("[rank ", victim,
                  " of 3] died: killed by signal 9 (Killed) at step 12, in "
                  "backward (bucket 5), after ")))
        << result.error;
  }
}

TEST(Job, ReportsTheRankThatCrashed) {
  const JobResult result = play("one_is_struck", {"2", std::to_string(SIGSEGV)}, 4);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(result.error.starts_with(
      "[rank 2 of 4] died: killed by signal 11 (Segmentation fault) at step 12"))
      << result.error;
}

TEST(Job, PeersAreToldOfADeath) {
  Folder folder;
  JobOptions options = job_of("one_is_struck", {"1", std::to_string(SIGKILL)}, 2);
  JobResult result;
  // Rank 0 leaves by itself on hearing of it: nobody waits for SIGTERM.
  EXPECT_LT(seconds_of([&] { result = run_job(options); }), 0.9);
  EXPECT_EQ(result.exit_code, 4);
}

TEST(Job, AStoppedRankIsWokenToLeave) {
  JobResult result;
  EXPECT_LT(seconds_of([&] { result = play("one_is_stopped", {"1"}, 3); }), 0.9);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.error, "[rank 2 of 3] no word from rank 1");
}

TEST(Job, KeepsTheLastOperationsOfEveryRank) {
  Folder folder;
  JobOptions options = job_of("one_is_struck_after_a_barrier", {"1"}, 3);
  options.log_folder = folder.path();
  const JobResult result = run_job(options);
  EXPECT_EQ(result.exit_code, 4);
  expect_contains(result.error, "\n  The last operations of every rank: " + folder.path() +
                                    "/last_operations.txt");
  const std::string operations = folder.text_of("last_operations.txt");
  for (const int rank : {0, 1, 2}) {
    expect_contains(operations,
                    base::str("rank ", rank, " at step 0, in forward:\n  barrier on \"world\" #"));
  }
  // An error of the rank's own: the file is there, and not in the way.
  options = job_of("one_fails", {"1", "1"}, 2);
  options.log_folder = folder.path();
  EXPECT_EQ(run_job(options).error.find("last_operations"), std::string::npos);
  EXPECT_EQ(folder.text_of("last_operations.txt"),
            "rank 0 before the first step, in start:\n  none\n"
            "rank 1 before the first step, in start:\n  none\n");
}

TEST(Job, TheFirstErrorIsReportedAndNotItsEchoes) {
  for (const int speaker : {0, 1, 2}) {
    const JobResult result = play("one_fails", {std::to_string(speaker), "1"}, 3);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.error, base::str("[rank ", speaker, " of 3] loss is nan"));
  }
}

TEST(Job, CrashesThatFollowAnErrorDoNotHideIt) {
  const JobResult result = play("others_crash", {"1"}, 3);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.error, "[rank 1 of 3] the file is cut short");
}

TEST(Job, ADeathThatAPeerReportsFirstIsStillTheCause) {
  for (const int victim : {0, 2}) {
    const JobResult result = play("one_dies_unseen", {std::to_string(victim)}, 3);
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_TRUE(result.error.starts_with(base::str("[rank ", victim, " of 3] died: killed")))
        << result.error;
  }
}

TEST(Job, ARankThatLeavesTheOthersWaitingHasFailed) {
  const JobResult result = play("one_deserts", {"1"}, 3);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(result.error.starts_with("[rank 1 of 3] exited with code 0 before the first step"))
      << result.error;
}

TEST(Job, DeafRanksAreKilledWithinFiveSeconds) {
  JobResult result;
  const double seconds = seconds_of([&] { result = play("one_fails_others_are_deaf", {"0"}, 3); });
  EXPECT_LT(seconds, 5);
  EXPECT_GT(seconds, 3.5);  // they had their time
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(result.error.starts_with("[rank 0 of 3] exited with code 9")) << result.error;
}

TEST(Job, ARequestToStopIsPassedOnOnce) {
  const JobResult stopped = play("leave_on_request", {"75"}, 3);
  EXPECT_EQ(stopped.exit_code, 75);
  EXPECT_EQ(stopped.error, "");
  EXPECT_EQ(play("leave_on_request", {"0"}, 3).exit_code, 0);
}

TEST(Job, SaysThatARequestWasHeard) {
  JobOptions options = job_of("leave_on_request", {"75"}, 2);
  options.stop_notice = "stopping";
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_job(options).exit_code, 75);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "stopping\n");
}

TEST(Job, ASecondRequestKills) {
  JobResult result;
  EXPECT_LT(seconds_of([&] { result = play("ignore_requests", {std::to_string(SIGINT)}, 3); }), 2);
  EXPECT_EQ(result.exit_code, 130);
  expect_contains(result.error, "Ctrl-C (SIGINT)");
  EXPECT_EQ(play("ignore_requests", {std::to_string(SIGTERM)}, 3).exit_code, 143);
  const JobResult hung_up = play("ignore_requests", {std::to_string(SIGHUP)}, 2);
  EXPECT_EQ(hung_up.exit_code, 129);
  EXPECT_EQ(hung_up.error, "SIGHUP: the job was stopped at once; what it had not saved is lost.");
}

TEST(Job, ARequestThatNobodyFollowsIsBoundedByTheTimeout) {
  JobOptions options = job_of("ignore_requests", {"0"}, 2);
  options.timeout_s = 0.2;
  const JobResult result = run_job(options);
  EXPECT_EQ(result.exit_code, 130);
}

TEST(Job, RanksThatDieOfTheRequestEndTheJob) {
  const JobResult result = play("die_of_request", {}, 3);
  EXPECT_EQ(result.exit_code, 130);
  expect_contains(result.error, "before they could save");
}

TEST(Job, RefusesWhatCannotBeStarted) {
  const JobResult none = play("exit_with", {"0"}, 0);
  EXPECT_EQ(none.exit_code, 2);
  expect_contains(none.error, "-n 0");

  Folder folder;
  const std::string missing = folder.path() + "/no-such-program";
  const JobResult no_program = run_job({.command = {missing}, .ranks = 2});
  EXPECT_EQ(no_program.exit_code, 2);
  expect_contains(no_program.error, "cannot start " + missing);
  EXPECT_EQ(run_job({.command = {"lockstep-no-such-program"}, .ranks = 1}).exit_code, 2);

  // A file that may be executed, but is no program: found by exec, in the child.
  const std::string no_format = folder.path() + "/not-a-program";
  std::ofstream(no_format) << "\x7f"
                              "nothing";
  fs::permissions(no_format, fs::perms::owner_all);
  const JobResult bad_format = run_job({.command = {no_format}, .ranks = 2});
  EXPECT_EQ(bad_format.exit_code, 2);
  expect_contains(bad_format.error, "Exec format error");

  JobOptions no_folder = job_of("exit_with", {"0"}, 1);
  no_folder.log_folder = folder.path() + "/gone";
  EXPECT_EQ(run_job(no_folder).exit_code, 3);
  JobOptions no_engine = job_of("exit_with", {"0"}, 1);
  no_engine.engine = "smoke";
  EXPECT_EQ(run_job(no_engine).exit_code, 2);
}

TEST(Job, WhatARankStartedEndsWithIt) {
  Pipe pipe;
  JobOptions options = job_of("leave_a_child", {std::to_string(pipe.write_end)}, 1);
  EXPECT_EQ(run_job(options).exit_code, 3);
  pipe.close_write_end();
  EXPECT_TRUE(pipe.comes_to_its_end());
}

TEST(Job, RanksDieWithTheLauncher) {
  Pipe pipe;
  const pid_t launcher = fork();
  if (launcher == 0) {
    run_job(job_of("hold", {std::to_string(pipe.write_end)}, 2));
    _exit(0);
  }
  pipe.close_write_end();
  char bytes[2];
  for (char& byte : bytes) ASSERT_EQ(read(pipe.read_end, &byte, 1), 1);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(pipe.comes_to_its_end());
}

TEST(Job, ExitCodesAreSeenThoughTheCallerIgnoresItsChildren) {
  std::signal(SIGCHLD, SIG_IGN);
  const JobResult result = play("exit_with", {"0", "3"}, 2);
  struct sigaction after {};
  sigaction(SIGCHLD, nullptr, &after);
  std::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
}

TEST(Job, AHundredLeaveNothingBehind) {
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = descriptors();
  for (int i = 0; i < 100; ++i) {
    JobOptions options = job_of("exit_with", {"0", i % 10 == 9 ? "3" : "0"}, 2);
    if (i % 2 == 1) {
      options.output = Output::lines;
      options.guard = true;
    }
    ASSERT_EQ(run_job(options).exit_code, i % 10 == 9 ? 3 : 0);
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace

int play_part(const std::string& name, const Arguments& args) { return parts().at(name)(args); }

}  // namespace lockstep::launch

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--part") {
    return lockstep::launch::play_part(argv[2], {argv + 3, argv + argc});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
