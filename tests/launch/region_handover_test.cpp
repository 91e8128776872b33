// The ranks of a host find each other: as threads where that will do, as processes where one dies.

#include "lockstep/launch/region_handover.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/region_handover_wire.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

/// A key that no other test, and no test beside this one, has.
std::string new_key() {
  static int number = 0;
  return base::str("test of process ", getpid(), " number ", ++number);
}

HandoverOptions place(const std::string& key, int local_rank, int local_size,
                      std::chrono::milliseconds timeout = 20s) {
  return {.key = key,
          .rank = local_rank,
          .world_size = local_size,
          .local_rank = local_rank,
          .local_size = local_size,
          .started_by = "a test",
          .timeout = timeout};
}

struct Outcome {
  Received received;
  std::string error;
  int exit_code = 0;
};

Outcome outcome_of(const std::function<Received()>& work) {
  try {
    return {work(), "", 0};
  } catch (const Error& error) {
    return {{}, error.what(), error.exit_code()};
  }
}

Outcome host(const HandoverOptions& options, const std::string& message = "") {
  return outcome_of(
      [&] { return hand_out(options, net::Region::create(options.world_size, 1 << 20), message); });
}

Outcome guest(const HandoverOptions& options) {
  return outcome_of([&] { return take_over(options); });
}

/// What became of each, all started at once.
std::vector<Outcome> all_of(const std::vector<std::function<Outcome()>>& ranks) {
  std::vector<Outcome> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = ranks[i](); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void expect_contains(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no \"" << words << "\" in: " << text;
}

/// A process of its own, killed and collected at the end.
class Child {
 public:
  explicit Child(const std::function<void()>& work) : pid_(fork()) {
    if (pid_ == 0) {
      work();
      _exit(0);
    }
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

/// Until a process listens under the key.
void wait_for_host(const std::string& key) {
  while (!handover::connect_to(key)) std::this_thread::yield();
}

bool name_is_free(const std::string& key) { return handover::listen_as(key).has_value(); }

TEST(RegionHandover, GivesAllRanksOneRegionAndTheMessage) {
  for (const int ranks : {1, 2, 5}) {
    const std::string key = new_key();
    std::vector<std::function<Outcome()>> all;
    for (int rank = ranks - 1; rank > 0; --rank) {
      all.push_back([=] { return guest(place(key, rank, ranks)); });
    }
    all.push_back([=] { return host(place(key, 0, ranks), "runs/nano-1"); });
    const auto outcomes = all_of(all);
    for (const Outcome& outcome : outcomes) {
      ASSERT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.received.message, "runs/nano-1");
      EXPECT_EQ(outcome.received.region->ranks(), ranks);
    }
    outcomes.front().received.region->abort("seen by all");
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.received.region->abort_message(), "seen by all");
    }
  }
}

TEST(RegionHandover, NamesWhoHasNotComeToAllWhoHave) {
  const std::string key = new_key();
  const auto outcomes =
      all_of({[&] { return host(place(key, 0, 4, 400ms)); },
              [&] { return guest(place(key, 1, 4)); }, [&] { return guest(place(key, 3, 4)); }});
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 5);
    expect_contains(outcome.error, "after 0.4 s local rank 2 has not come; local ranks 0, 1 and 3");
  }
  EXPECT_TRUE(outcomes[0].error.starts_with("[rank 0 of 4] joining under a test: "));
  EXPECT_TRUE(outcomes[2].error.starts_with("[rank 3 of 4] ")) << outcomes[2].error;
}

TEST(RegionHandover, WaitsForLocalRankZeroNoLongerThanTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = guest(place(new_key(), 1, 2, 200ms));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_EQ(outcome.exit_code, 5);
  expect_contains(outcome.error,
                  "after 0.2 s local rank 0 has not come; this is local rank 1 of 2");
}

TEST(RegionHandover, RefusesRanksThatWereToldOfAnotherWorld) {
  const std::string key = new_key();
  HandoverOptions wrong = place(key, 1, 2);
  wrong.world_size = 3;
  const auto outcomes =
      all_of({[&] { return host(place(key, 0, 2, 400ms)); }, [&] { return guest(wrong); }});
  EXPECT_EQ(outcomes[1].exit_code, 5);
  expect_contains(outcomes[1].error, "was told of 3 ranks, 2 of them on this host");
  expect_contains(outcomes[0].error, "local rank 1 has not come");
  expect_contains(outcomes[0].error, "was told of 3 ranks");
}

TEST(RegionHandover, RefusesTheSecondOfTwoThatClaimOnePlace) {
  const std::string key = new_key();
  const auto outcomes =
      all_of({[&] { return host(place(key, 0, 3, 400ms)); },
              [&] { return guest(place(key, 1, 3)); }, [&] { return guest(place(key, 1, 3)); }});
  int refused = 0;
  for (const Outcome& outcome : outcomes) {
    refused += outcome.error.find("local rank 1 has come twice") != std::string::npos &&
               outcome.error.find("turned away") != std::string::npos;
  }
  EXPECT_EQ(refused, 1);
}

TEST(RegionHandover, TellsTheOthersThatLocalRankZeroCannotBegin) {
  const std::string key = new_key();
  const auto outcomes =
      all_of({[&] {
                hand_out_failure(place(key, 0, 3), "model.width is odd", 2);
                return Outcome{};
              },
              [&] { return guest(place(key, 1, 3)); }, [&] { return guest(place(key, 2, 3)); }});
  for (const int rank : {1, 2}) {
    EXPECT_EQ(outcomes[rank].exit_code, 2);
    expect_contains(outcomes[rank].error, "local rank 0 gave up: model.width is odd");
  }
}

TEST(RegionHandover, ARankThatDiesWhileItWaitsEndsTheWait) {
  const std::string key = new_key();
  const Child dying([&] {
    std::optional<Descriptor> connection;
    while (!(connection = handover::connect_to(key))) std::this_thread::yield();
    handover::send(*connection, handover::Hello{.nonce = handover::receive_nonce(*connection),
                                                .rank = 1,
                                                .world_size = 3,
                                                .local_rank = 1,
                                                .local_size = 3,
                                                .cores = {},
                                                .key = key});
    raise(SIGKILL);
  });
  const Outcome outcome = host(place(key, 0, 3));
  EXPECT_EQ(outcome.exit_code, 4);
  expect_contains(outcome.error, base::str("local rank 1 (process ", dying.pid(), ") went away"));
}

TEST(RegionHandover, TheDeathOfLocalRankZeroEndsTheWait) {
  const std::string key = new_key();
  const Child zero([&] {
    const auto listener = handover::listen_as(key);
    const Descriptor connection(accept(listener->get(), nullptr, nullptr));
    handover::send_nonce(connection, std::string(16, 'n'));
    handover::receive_hello(connection);
    raise(SIGKILL);
  });
  const Outcome outcome = guest(place(key, 1, 3));
  EXPECT_EQ(outcome.exit_code, 4);
  expect_contains(outcome.error, base::str("local rank 0 (process ", zero.pid(), ") went away"));
}

// BAD-9: a leftover of a crashed run, two jobs at once.
TEST(RegionHandover, BAD_9_ACrashedRunLeavesNothingThatIsTakenForOurs) {
  const std::string key = new_key();
  Child crashed([&] { host(place(key, 0, 2)); });
  wait_for_host(key);
  EXPECT_FALSE(name_is_free(key));
  // Its listener still lives: the new job does not take it for its own.
  const Outcome second = host(place(key, 0, 2));
  EXPECT_EQ(second.exit_code, 3);
  expect_contains(second.error, base::str("process ", crashed.pid(), " of user ", getuid()));
  crashed.end();
  EXPECT_TRUE(name_is_free(key));
  const auto outcomes =
      all_of({[&] { return host(place(key, 0, 2)); }, [&] { return guest(place(key, 1, 2)); }});
  EXPECT_EQ(outcomes[0].error + outcomes[1].error, "");
}

TEST(RegionHandover, BAD_9_TwoJobsAtOnceDoNotMeet) {
  for (int round = 0; round < 20; ++round) {
    const std::string key = new_key();
    const std::string other = new_key();
    const auto outcomes =
        all_of({[&] { return host(place(key, 0, 2), "first"); },
                [&] { return guest(place(other, 1, 2)); }, [&] { return guest(place(key, 1, 2)); },
                [&] { return host(place(other, 0, 2), "second"); }});
    for (const Outcome& outcome : outcomes) ASSERT_EQ(outcome.error, "");
    EXPECT_EQ(outcomes[2].received.message, "first");
    EXPECT_EQ(outcomes[1].received.message, "second");
  }
}

TEST(RegionHandover, AnotherKeyUnderTheSameNameIsRefused) {
  const std::string key = new_key();
  Outcome outcome;
  std::thread zero([&] { outcome = host(place(key, 0, 2, 400ms)); });
  wait_for_host(key);
  const auto connection = handover::connect_to(key);
  handover::send(*connection, handover::Hello{.nonce = handover::receive_nonce(*connection),
                                              .rank = 1,
                                              .world_size = 2,
                                              .local_rank = 1,
                                              .local_size = 2,
                                              .cores = {},
                                              .key = "other"});
  const handover::Reply reply = handover::receive_reply(*connection);
  zero.join();
  EXPECT_EQ(reply.kind, handover::ReplyKind::refused);
  EXPECT_EQ(reply.fd, -1);
  expect_contains(reply.text, "is of the job \"other\"");
  expect_contains(outcome.error, "local rank 1 has not come");
}

TEST(RegionHandover, NoiseOnTheSocketIsIgnored) {
  const std::string key = new_key();
  std::vector<Outcome> outcomes(2);
  std::thread zero([&] { outcomes[0] = host(place(key, 0, 2)); });
  wait_for_host(key);
  const auto noisy = handover::connect_to(key);
  ASSERT_EQ(write(noisy->get(), "GET / HTTP/1.1", 14), 14);
  const auto silent = handover::connect_to(key);
  outcomes[1] = guest(place(key, 1, 2));
  zero.join();
  EXPECT_EQ(outcomes[0].error + outcomes[1].error, "");
}

TEST(RegionHandover, AnotherUserIsNotTaken) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to start a process of another user";
  constexpr uid_t kNobody = 65534;
  const std::string key = new_key();
  {
    const Child poser([&] {
      if (setuid(kNobody) == 0) host(place(key, 0, 2));
    });
    wait_for_host(key);
    const Outcome outcome = guest(place(key, 1, 2));
    EXPECT_EQ(outcome.exit_code, 3);
    expect_contains(outcome.error, "of user 65534 poses as local rank 0");
  }
  Outcome outcome;
  std::thread zero([&] { outcome = host(place(key, 0, 2, 400ms)); });
  wait_for_host(key);
  const Child thief([&] {
    if (setuid(kNobody) == 0) guest(place(key, 1, 2));
  });
  zero.join();
  expect_contains(outcome.error, "local rank 1 has not come");
}

TEST(RegionHandover, LeavesNoDescriptorAndNoName) {
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = descriptors();
  for (int i = 0; i < 20; ++i) {
    const std::string key = new_key();
    all_of({[&] { return host(place(key, 0, 2)); }, [&] { return guest(place(key, 1, 2)); }});
    host(place(key, 0, 2, 1ms));
    EXPECT_TRUE(name_is_free(key));
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(JobKey, DiffersByJobRestartAndMeetingPlace) {
  Place one;
  one.launcher = Launcher::torchrun;
  one.rank = 1;
  one.world_size = 2;
  one.host = "a";
  one.port = 29500;
  one.rank_variable = "RANK";
  Place other = one;
  other.rank = 0;
  EXPECT_EQ(job_key(one), job_key(other));
  other.port = 29501;
  EXPECT_NE(job_key(one), job_key(other));
  other = one;
  other.restart_count = 1;
  EXPECT_NE(job_key(one), job_key(other));
  other = one;
  other.job_id = "7f3a";
  EXPECT_NE(job_key(one), job_key(other));
  expect_contains(job_key(one), base::str("user ", geteuid()));
  EXPECT_EQ(job_key(one).find("under process"), std::string::npos);
  expect_contains(job_key(other), "under process");
}

/// What a restart changes is not in it: count, meeting place, a requeued job's hosts.
TEST(JobKey, AllStartsOfAJobHaveOne) {
  Place first;
  first.launcher = Launcher::torchrun;
  first.host = "a";
  first.port = 29500;
  first.rank_variable = "RANK";
  Place second = first;
  second.port = 29501;
  second.restart_count = 1;
  EXPECT_EQ(key_of_all_starts(first), key_of_all_starts(second));
  expect_contains(key_of_all_starts(first), base::str("process ", getppid()));

  first.launcher = second.launcher = Launcher::slurm;
  first.job_id = second.job_id = "17.0";
  second.host = "b";
  EXPECT_EQ(key_of_all_starts(first), key_of_all_starts(second));
  second.job_id = "18.0";
  EXPECT_NE(key_of_all_starts(first), key_of_all_starts(second));

  first.launcher = Launcher::open_mpi;  // it ends with the first rank that dies
  EXPECT_EQ(key_of_all_starts(first), "");
  EXPECT_EQ(key_of_all_starts({}), "");
}

}  // namespace
}  // namespace lockstep::launch
