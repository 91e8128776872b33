/// Runs a body on the ranks of an engine: threads of this process, or forked processes over a
/// shared mapping. Failures and exceptions of every rank reach the test that started them.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/net/world.h"

namespace lockstep::net::testing {

enum class Engine { threads, shm };

inline const char* name_of(Engine engine) { return engine == Engine::shm ? "shm" : "threads"; }

using Body = std::function<void(const std::shared_ptr<Group>&)>;

/// How a rank ended.
struct Outcome {
  std::string error;    // of the exception that left the body; empty if none did
  int signal = 0;       // that killed the process
  bool failed = false;  // an EXPECT failed in it
};

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

namespace detail {

inline std::vector<Outcome> on_threads(int ranks, const Body& body,
                                       const EndpointOptions& options) {
  const auto region = Region::in_process(ranks);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        std::shared_ptr<Endpoint> endpoint;
        outcomes[static_cast<size_t>(rank)].error = error_of([&] {
          endpoint = Endpoint::join(region, rank, true, options);
          body(endpoint->world());
          endpoint->finish();
        });
      });
    }
  }
  return outcomes;
}

[[noreturn]] inline void run_child(const Region& region, int rank, const Body& body,
                                   const EndpointOptions& options, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string error = error_of([&] {
    const auto endpoint = Endpoint::join(Region::attach(region.fd()), rank, false, options);
    body(endpoint->world());
    endpoint->finish();
  });
  if (write(report, error.data(), error.size()) < 0) _exit(2);
  fflush(stdout);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

inline std::vector<Outcome> on_processes(int ranks, const Body& body,
                                         const EndpointOptions& options) {
  const auto region = Region::create(ranks);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<int> reports;
  std::vector<pid_t> children;
  fflush(stdout);
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      run_child(*region, rank, body, options, ends[1]);
    }
    close(ends[1]);
    reports.push_back(ends[0]);
    children.push_back(child);
  }
  // Reaped as they end, so that peers see a rank that died as gone.
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    for (size_t r = 0; r < children.size(); ++r) {
      if (children[r] != ended) continue;
      outcomes[r].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      outcomes[r].failed = WIFEXITED(status) && WEXITSTATUS(status) != 0;
    }
  }
  for (size_t r = 0; r < reports.size(); ++r) {
    char buffer[4096];
    for (ssize_t n; (n = read(reports[r], buffer, sizeof buffer)) > 0;) {
      outcomes[r].error.append(buffer, static_cast<size_t>(n));
    }
    close(reports[r]);
  }
  return outcomes;
}

}  // namespace detail

/// Ranks share the cores of a test machine: they wait by giving them away.
inline EndpointOptions patient() {
  return {.timeout = std::chrono::milliseconds(60'000), .oversubscribed = true};
}

/// Runs `body` and returns how each rank ended; nobody tells the others of a failure.
inline std::vector<Outcome> outcomes_of(Engine engine, int ranks, const Body& body,
                                        const EndpointOptions& options = patient()) {
  return engine == Engine::shm ? detail::on_processes(ranks, body, options)
                               : detail::on_threads(ranks, body, options);
}

/// Runs `body`; every rank must come to its end.
inline void run_on(Engine engine, int ranks, const Body& body,
                   const EndpointOptions& options = patient()) {
  const auto outcomes = outcomes_of(engine, ranks, body, options);
  for (size_t r = 0; r < outcomes.size(); ++r) {
    EXPECT_EQ(outcomes[r].error, "") << "rank " << r;
    EXPECT_EQ(outcomes[r].signal, 0) << "rank " << r;
    EXPECT_FALSE(outcomes[r].failed) << "rank " << r;
  }
}

}  // namespace lockstep::net::testing
