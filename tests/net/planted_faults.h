/// Runs a job of four `planted_rank` processes with a fault at a named point of one of them, and
/// looks at how each rank ended and what is left.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/net/world.h"
#include "tests/net/values.h"

namespace lockstep::net::testing {

inline constexpr int kPlantedRanks = 4;
inline const std::vector<std::string> kFaults = {"kill", "stop", "delay", "exception"};

/// 0: no fault; a rank passes a point several times, and the pass is drawn from the seed.
struct PlantedFault {
  std::string point;
  std::string fault;
  int victim = 0;
  uint64_t seed = 0;
};

inline std::string name_of(const PlantedFault& f) {
  return base::str(f.point, "_", f.fault, "_rank", f.victim);
}
inline void PrintTo(const PlantedFault& f, std::ostream* out) { *out << name_of(f); }

struct PlantedEnd {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

namespace detail {

inline std::string all_of(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

struct PlantedProcess {
  pid_t pid = -1;
  int out = -1;
  int err = -1;
};

inline PlantedProcess start(const std::vector<std::string>& arguments) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "planted_rank";
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  return {pid, out[0], err[0]};
}

inline int descriptors_of_this_process() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

}  // namespace detail

/// How the four ranks ended, by rank. A rank that was stopped is killed when the others have ended.
inline std::vector<PlantedEnd> run_planted(std::chrono::milliseconds timeout,
                                           const PlantedFault& fault = {}, int pass = 0) {
  const auto region = Region::create(kPlantedRanks);
  const int fd = fcntl(region->fd(), F_DUPFD, 100);  // without close-on-exec
  std::vector<detail::PlantedProcess> ranks;
  for (int rank = 0; rank < kPlantedRanks; ++rank) {
    std::vector<std::string> words = {std::to_string(fd), std::to_string(rank),
                                      std::to_string(timeout.count())};
    if (pass > 0 && rank == fault.victim) {
      words.insert(words.end(), {fault.point, std::to_string(pass), fault.fault});
    }
    ranks.push_back(detail::start(words));
  }
  close(fd);
  std::vector<PlantedEnd> ends(kPlantedRanks);
  const auto reap = [&](int options) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, options);
    for (size_t r = 0; r < ranks.size() && ended > 0; ++r) {
      if (ranks[r].pid != ended) continue;
      ends[r].exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return ended > 0;
  };
  // Reaped as they end, so that their peers see them as gone.
  const bool one_stays = pass > 0 && fault.fault == "stop";
  for (int left = kPlantedRanks; left > (one_stays ? 1 : 0); --left) reap(0);
  if (one_stays) {
    EXPECT_FALSE(reap(WNOHANG)) << "the stopped rank has ended";
    kill(ranks[static_cast<size_t>(fault.victim)].pid, SIGKILL);
    reap(0);
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    ends[r].out = detail::all_of(ranks[r].out);
    ends[r].err = detail::all_of(ranks[r].err);
  }
  return ends;
}

/// A job without a fault: what each rank prints. Run once.
inline const std::vector<PlantedEnd>& unplanted() {
  static const std::vector<PlantedEnd> ends = run_planted(std::chrono::seconds(60));
  return ends;
}

/// How often the rank passes the point.
inline int passes_of(int rank, const std::string& point) {
  std::istringstream words(unplanted()[static_cast<size_t>(rank)].out);
  for (std::string word; words >> word;) {
    int count = 0;
    if (word == point && words >> count) return count;
  }
  return 0;
}

/// Every accusation in `text` - "no word from rank 2 for", "rank 2 is gone" - is of `victim`.
/// Groups count their members in their own way, and then say which rank of the job is meant.
inline void expect_blames_only(const std::string& text, int victim) {
  const std::string job = base::str("rank ", victim);
  const auto is_meant = [&](const std::string& who, size_t at) {
    const size_t line = text.find("\n  R", at);  // "Rank 1 (rank 3 of the job) was last seen"
    const std::string seen = line == std::string::npos ? "" : text.substr(line + 4, 60);
    const size_t other_name = seen.find(" (rank ");
    if (other_name != std::string::npos && other_name < seen.find(" was ")) {
      return seen.substr(other_name + 2).starts_with(job + " of the job)");
    }
    return who == job || who == job + " of the job";
  };
  int accusations = 0;
  for (size_t at = 0; (at = text.find("no word from ", at)) != std::string::npos;) {
    at += std::strlen("no word from ");
    const std::string who = text.substr(at, text.find(" for ", at) - at);
    EXPECT_TRUE(is_meant(who, at)) << who << " is blamed in: " << text;
    ++accusations;
  }
  for (size_t at = 0; (at = text.find(" is gone", at)) != std::string::npos; ++at) {
    const size_t start = text.rfind("rank ", at);
    EXPECT_TRUE(is_meant(text.substr(start, at - start), at)) << text;
    ++accusations;
  }
  if (text.find(base::str("rank ", victim, " failed: planted")) != std::string::npos ||
      text.find("left the call with an error of its own") != std::string::npos ||
      text.find("this rank left the call before") != std::string::npos) {
    ++accusations;
  }
  EXPECT_GT(accusations, 0) << "nobody is blamed: " << text;
}

/// Runs the fault and checks that everybody ends as they should.
inline void check_planted(const PlantedFault& fault) {
  const int passes = passes_of(fault.victim, fault.point);
  ASSERT_GT(passes, 0) << "the calls never come by " << fault.point;
  // Not the last pass: the others might end well before anybody knows.
  const int pass = 1 + static_cast<int>(draw(fault.seed, 3, fault.victim) %
                                        static_cast<uint64_t>(std::max(1, passes - 1)));
  SCOPED_TRACE(base::str("pass ", pass, " of ", passes));
  const bool delayed = fault.fault == "delay";
  const std::chrono::milliseconds timeout(fault.fault == "stop" ? 1000 : 20'000);
  const int descriptors = detail::descriptors_of_this_process();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<PlantedEnd> ends = run_planted(timeout, fault, pass);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;

  EXPECT_LT(time.count(), fault.fault == "stop" ? 5 : 4);
  // After its last call a rank owes the others nothing.
  const bool nobody_cares = delayed || fault.point == "finish";
  for (int rank = 0; rank < kPlantedRanks; ++rank) {
    SCOPED_TRACE(base::str("rank ", rank));
    const PlantedEnd& end = ends[static_cast<size_t>(rank)];
    if (rank == fault.victim && !delayed) {
      EXPECT_EQ(end.exit_code, fault.fault == "exception" ? 1 : 128 + SIGKILL);
      EXPECT_EQ(end.err, fault.fault == "exception" ? "planted" : "");
    } else if (nobody_cares) {
      EXPECT_EQ(end.exit_code, 0);
      EXPECT_EQ(end.err, "");
      EXPECT_EQ(end.out, unplanted()[static_cast<size_t>(rank)].out);
    } else {
      EXPECT_EQ(end.exit_code, fault.fault == "kill" ? 4 : 5) << end.err;
      expect_blames_only(end.err, fault.victim);
    }
  }
  EXPECT_EQ(detail::descriptors_of_this_process(), descriptors);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left behind";
}

}  // namespace lockstep::net::testing
