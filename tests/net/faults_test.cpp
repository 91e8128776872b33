// What ranks do when one of them does something else, nothing at all, or dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "tests/net/ranks.h"
#include "tests/net/values.h"

namespace lockstep::net::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class Faults : public ::testing::TestWithParam<Engine> {};
INSTANTIATE_TEST_SUITE_P(Engines, Faults, ::testing::Values(Engine::threads, Engine::shm),
                         [](const auto& info) { return name_of(info.param); });

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Mismatch {
  const char* name;
  std::function<void(Group&)> odd;  // what rank 2 does
  std::function<void(Group&)> others;
  const char* odd_text;
  const char* others_text;
};

std::vector<Mismatch> mismatches() {
  static float floats[400];
  static int64_t numbers[400];
  const auto reduce = [](int64_t count, ReduceOp op = ReduceOp::sum) {
    return [=](Group& g) { g.all_reduce(floats, count, DType::f32, op); };
  };
  return {
      {"count", reduce(200), reduce(100), "all_reduce of 200 float32 (sum)",
       "all_reduce of 100 float32 (sum)"},
      {"type", [](Group& g) { g.all_reduce(numbers, 100, DType::i64); }, reduce(100),
       "all_reduce of 100 int64 (sum)", "all_reduce of 100 float32 (sum)"},
      {"operator", reduce(100, ReduceOp::max), reduce(100), "all_reduce of 100 float32 (max)",
       "all_reduce of 100 float32 (sum)"},
      {"operation", [](Group& g) { g.broadcast(numbers, 1, DType::i64, 0); }, reduce(25),
       "broadcast of 1 int64 from rank 0", "all_reduce of 25 float32 (sum)"},
      {"root", [](Group& g) { g.broadcast(floats, 9, DType::f32, 1); },
       [](Group& g) { g.broadcast(floats, 9, DType::f32, 0); },
       "broadcast of 9 float32 from rank 1", "broadcast of 9 float32 from rank 0"},
      {"counts by rank",
       [](Group& g) {
         g.all_gather(floats, floats + 100, std::vector<int64_t>{2, 3, 4}, DType::f32);
       },
       [](Group& g) {
         g.all_gather(floats, floats + 100, std::vector<int64_t>{3, 3, 3}, DType::f32);
       },
       "all_gather of 9 float32", "all_gather of 9 float32"},
      {"leaves", [](Group& g) { g.all_reduce_terms({}, 4, floats, 9, DType::f32); },
       [](Group& g) { g.all_reduce_terms({}, 8, floats, 9, DType::f32); },
       "all_reduce of 9 float32 (sum) over 4 leaves", "over 8 leaves"},
      {"barrier", [](Group& g) { g.barrier(); }, [](Group& g) { g.gather_text("x"); }, "barrier",
       "gather_text"},
  };
}

// Every rank raises within a second, names operation, number, ranks and both calls; a group that
// was made before goes on.
TEST_P(Faults, MismatchIsRaisedOnEveryRankAndSparesOtherGroups) {
  for (const Mismatch& mismatch : mismatches()) {
    run_on(GetParam(), 3, [&](const std::shared_ptr<Group>& world) {
      const auto spare = world->subgroup({0, 1, 2}, "spare");
      for (int i = 0; i < 10; ++i) world->barrier();
      std::string error;
      EXPECT_LT(
          seconds_of([&] {
            error = error_of([&] {
              (world->rank() == 2 ? mismatch.odd : mismatch.others)(*world);
              world->barrier();  // a short broadcast's root looks at the others in its next call
            });
          }),
          1.0);
      EXPECT_THAT(error, AllOf(HasSubstr("on \"world\" #12: "), HasSubstr(" of 3] "),
                               HasSubstr(mismatch.odd_text), HasSubstr(mismatch.others_text)))
          << mismatch.name;
      EXPECT_THAT(error, HasSubstr(world->rank() == 2 ? "came with" : "rank 2")) << mismatch.name;
      // The group is finished, and says why.
      EXPECT_EQ(error_of([&] { world->barrier(); }), error);
      float one = 1;
      spare->all_reduce(&one, 1, DType::f32);
      EXPECT_EQ(one, 3);
    });
  }
}

TEST_P(Faults, AllToAllCountsAreComparedByPair) {
  run_on(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
    std::vector<float> in(300);
    std::vector<float> out(300);
    const std::vector<int64_t> hundred = {100, 100, 100};
    const std::vector<int64_t> fewer = {100, 99, 100};
    // Rank 2 sends 99 to rank 1.
    const std::string error = error_of([&] {
      world->all_to_all(in.data(), world->rank() == 2 ? fewer : hundred, out.data(), hundred,
                        DType::f32);
    });
    if (world->rank() == 1) {
      EXPECT_THAT(error, HasSubstr("rank 2 sends 99 float32 to this rank, which expects 100"));
    } else if (world->rank() == 2) {
      EXPECT_THAT(error, HasSubstr("rank 1 expects 100 float32 from this rank, which sends 99"));
    } else {
      EXPECT_THAT(error, HasSubstr("rank 2 sends 99 float32 to rank 1, which expects 100"));
    }
  });
}

TEST_P(Faults, AMessageOfAnotherKindFailsOnBoth) {
  run_on(GetParam(), 2, [](const std::shared_ptr<Group>& world) {
    const auto block = world->allocate(4 * MiB);
    auto* data = static_cast<float*>(block.data());
    const int64_t count = MiB;  // long: the sender waits
    const std::string error = error_of([&] {
      if (world->rank() == 0) {
        world->send(data, count, DType::f32, 1, /*tag=*/7);
      } else {
        world->recv(data, count, DType::f32, 0, /*tag=*/8);
      }
    });
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0 sent 1048576 float32 with tag 7"),
                             HasSubstr("recv of 1048576 float32 with tag 8 from rank 0")));
  });
}

TEST_P(Faults, WrongArgumentsAreFoundBeforeAnybodyWaits) {
  run_on(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
    float x[8] = {};
    const std::vector<int64_t> two = {1, 2};
    const Term terms[] = {{{0, 2}, x}, {{1, 3}, x}};
    EXPECT_THROW(world->broadcast(x, 1, DType::f32, 3), UsageError);
    EXPECT_THROW(world->all_reduce(x, -1, DType::f32), UsageError);
    EXPECT_THROW(world->all_gather(x, x, two, DType::f32), UsageError);
    EXPECT_THROW(world->all_reduce_terms(terms, 4, x, 1, DType::f32), UsageError);
    EXPECT_THROW(world->all_reduce_terms(std::span(terms, 1), 4, x, 1, DType::i32), UsageError);
    EXPECT_THROW(world->send(x, 1, DType::f32, world->rank()), UsageError);
    EXPECT_THROW(world->subgroup({0, 0}, "twice"), UsageError);
    EXPECT_THROW(world->subgroup({0, 5}, "unknown"), UsageError);
    EXPECT_THROW(world->allocate(-1), UsageError);
    EXPECT_THROW(world->allocate(int64_t{1} << 62), OutOfMemory);
    world->barrier();  // none of this has harmed the group
    // Both ranks bring leaf 0: only together is that wrong.
    const Term leaf{{0, 1}, x};
    EXPECT_THAT(error_of([&] {
                  world->all_reduce_terms(std::span(&leaf, world->rank() < 2 ? 1 : 0), 4, x, 1,
                                          DType::f32);
                }),
                HasSubstr("a leaf must be brought once"));
  });
}

TEST_P(Faults, SubgroupListsMustAgree) {
  run_on(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
    const std::vector<int> mine =
        world->rank() == 2 ? std::vector<int>{1, 2} : std::vector<int>{0, 1};
    const std::string error = error_of([&] {
      world->subgroup(mine, "dp");
      world->barrier();
    });
    EXPECT_THAT(error, HasSubstr("\"dp\" of ranks"));
  });
}

// Rank 1 does not come to call 3. The others say who came, who did not, and where it was last seen.
TEST_P(Faults, ATimeoutNamesTheMissingRank) {
  const auto region_options = EndpointOptions{.timeout = 400ms, .oversubscribed = true};
  std::vector<Outcome> outcomes;
  const double seconds = seconds_of([&] {
    outcomes = outcomes_of(
        GetParam(), 4,
        [](const std::shared_ptr<Group>& world) {
          float x[100] = {};
          world->barrier();
          world->all_reduce(x, 50, DType::f32);
          if (world->rank() == 1) {
            world->endpoint().set_status(12, "backward", "bucket 5");
            // Stays away until the others have given up; then it learns of it at once.
            world->set_timeout(20s);
            const auto aside = std::chrono::steady_clock::now() + 700ms;
            while (std::chrono::steady_clock::now() < aside) usleep(1000);
          }
          world->all_reduce(x, 100, DType::f32);
        },
        region_options);
  });
  EXPECT_LT(seconds, 5);
  for (const int rank : {0, 2, 3}) {
    EXPECT_THAT(
        outcomes[rank].error,
        AllOf(HasSubstr("all_reduce on \"world\" #3: "), HasSubstr("no word from rank 1 for 0.4 s"),
              HasSubstr("have arrived"), HasSubstr("all_reduce of 100 float32 (sum)"),
              HasSubstr("Rank 1 was last seen in backward, bucket 5 of step 12; its last "
                        "call: all_reduce of 50 float32 (sum) on \"world\" #2."),
              HasSubstr("--set comm.timeout_s=")));
  }
  EXPECT_THAT(outcomes[1].error, HasSubstr("the group is finished"));
}

// Rank 1 does not come either, but only because it waits for rank 2 in another group.
TEST_P(Faults, ARankThatWaitsItselfIsNotBlamed) {
  run_on(GetParam(), 4, [](const std::shared_ptr<Group>& world) {
    const Region& region = world->endpoint().region();
    const auto pair = world->subgroup({2, 1}, "pair");
    float x = 1;
    if (world->rank() == 2) {
      while (region.status(0).phase != "told" || region.status(3).phase != "told") usleep(1000);
      world->abort("the test is over");
      return;
    }
    world->set_timeout(500ms);
    const std::string error = error_of([&] {
      if (world->rank() == 1) {
        pair->all_reduce(&x, 1, DType::f32);
      } else {
        world->all_reduce(&x, 1, DType::f32);
      }
    });
    if (world->rank() == 1) {
      EXPECT_THAT(error, HasSubstr("the test is over"));
    } else {
      EXPECT_THAT(error,
                  AllOf(HasSubstr("no word from rank 2 for 0.5 s (rank 1 waits for it too)"),
                        HasSubstr("Rank 2 was last seen"), Not(HasSubstr("Rank 1 was last seen"))));
      world->endpoint().set_status(0, "told");
    }
  });
}

TEST_P(Faults, AnAbortReachesEveryRankPromptly) {
  const double seconds = seconds_of([&] {
    run_on(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
      const auto pair = world->subgroup({0, 1}, "pair");
      world->barrier();
      if (world->rank() == 2) {
        world->abort("the loss is not a number");
        return;
      }
      // One waits in the world, the other for a message in another group.
      float x = 0;
      const std::string error = error_of([&] {
        if (world->rank() == 0) {
          world->all_reduce(&x, 1, DType::f32);
        } else {
          pair->recv(&x, 1, DType::f32, 0);
        }
      });
      EXPECT_THAT(error, AllOf(HasSubstr("the job was aborted"),
                               HasSubstr("rank 2: the loss is not a number")));
      EXPECT_THAT(error_of([&] { world->barrier(); }), HasSubstr("the loss is not a number"));
    });
  });
  EXPECT_LT(seconds, 5);
}

TEST_P(Faults, ARankThatLeftIsNotWaitedFor) {
  const auto outcomes = outcomes_of(GetParam(), 3, [](const std::shared_ptr<Group>& world) {
    world->barrier();
    if (world->rank() != 1) world->barrier();
  });
  EXPECT_EQ(outcomes[1].error, "");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(outcomes[rank].error, HasSubstr("rank 1 has left the job in good order"));
  }
}

TEST(Processes, AKilledRankIsNamed) {
  std::vector<Outcome> outcomes;
  const double seconds = seconds_of([&] {
    outcomes = outcomes_of(Engine::shm, 3, [](const std::shared_ptr<Group>& world) {
      std::vector<float> x(100'000);
      world->all_reduce(x.data(), 100'000, DType::f32);
      world->endpoint().set_status(3, "forward", "leaf 1.0");
      world->barrier();
      if (world->rank() == 2) raise(SIGKILL);
      world->all_reduce(x.data(), 100'000, DType::f32);
    });
  });
  EXPECT_LT(seconds, 5);
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(outcomes[rank].error,
                AllOf(HasSubstr("rank 2 is gone"), HasSubstr("last seen in forward, leaf 1.0")));
  }
}

// Rank 0 lends memory and is through at once; rank 1 copies for a long time. An abort ends rank 0's
// wait, but not before the copy has ended: the memory goes the moment that rank 0 is told.
void lend_and_abort(const std::function<void(Group&, void*, int64_t)>& lend,
                    const std::function<void(Group&, void*, int64_t)>& borrow) {
  constexpr int64_t kBytes = 192 * MiB;
  const auto map = [] {
    return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  const auto outcomes = outcomes_of(Engine::threads, 3, [&](const std::shared_ptr<Group>& world) {
    const auto pair = world->subgroup({0, 1}, "pair");
    if (world->rank() == 2) {
      // Both others have come: rank 1's first page is there.
      while (world->endpoint().region().status(1).phase != "copying") usleep(100);
      usleep(2000);
      world->abort("in the middle of a copy");
      return;
    }
    void* const memory = map();
    if (world->rank() == 0) {
      const std::string error = error_of([&] { lend(*pair, memory, kBytes); });
      munmap(memory, kBytes);
      EXPECT_THAT(error, HasSubstr("in the middle of a copy"));
    } else {
      pair->barrier();
      world->endpoint().set_status(0, "copying");
      error_of([&] { borrow(*pair, memory, kBytes); });
      munmap(memory, kBytes);
    }
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

TEST(Threads, LentMemoryOutlivesAnAbortInACollective) {
  lend_and_abort(
      [](Group& group, void* memory, int64_t bytes) {
        group.barrier();
        group.all_gather(memory, memory, std::vector<int64_t>{bytes, 0}, DType::u8);
      },
      [](Group& group, void* memory, int64_t bytes) {
        char none = 0;
        group.all_gather(&none, memory, std::vector<int64_t>{bytes, 0}, DType::u8);
      });
}

TEST(Threads, LentMemoryOutlivesAnAbortInAMessage) {
  lend_and_abort(
      [](Group& group, void* memory, int64_t bytes) {
        group.barrier();
        group.send(memory, bytes, DType::u8, 1);
      },
      [](Group& group, void* memory, int64_t bytes) { group.recv(memory, bytes, DType::u8, 0); });
}

TEST(Threads, TheCauseIsThrownNotAnEcho) {
  EXPECT_THAT(error_of([] {
                run_on_threads(3, [](const std::shared_ptr<Group>& world) {
                  world->barrier();
                  if (world->rank() == 1) throw StateError("the checkpoint is short");
                  world->barrier();
                });
              }),
              "the checkpoint is short");
}

TEST(Region, RefusesWhatIsNoRegion) {
  EXPECT_THROW(Region::attach(-1), EnvironmentError);
  const int fd = memfd_create("other", 0);
  EXPECT_THROW(Region::attach(fd), EnvironmentError);
  ASSERT_EQ(ftruncate(fd, 1 << 20), 0);
  EXPECT_THAT(error_of([&] { Region::attach(fd); }), HasSubstr("holds no region"));
  close(fd);
  const auto region = Region::create(2);
  ASSERT_EQ(ftruncate(region->fd(), 1 << 30), 0);
  EXPECT_THAT(error_of([&] { Region::attach(region->fd()); }), HasSubstr("its size is"));
}

TEST(Region, KeepsWhatARankLastDid) {
  const auto region = Region::in_process(1);
  const auto endpoint = Endpoint::join(region, 0, true);
  EXPECT_THROW(Endpoint::join(region, 0, true), UsageError);
  EXPECT_THROW(Endpoint::join(region, 1, true), UsageError);
  EXPECT_TRUE(region->recent_operations(0).empty());
  const auto world = endpoint->world();
  for (int i = 1; i <= 30; ++i) world->all_reduce(nullptr, 0, DType::bf16, ReduceOp::max);
  const auto recent = region->recent_operations(0);
  ASSERT_EQ(recent.size(), 20u);
  EXPECT_EQ(recent.front(), "all_reduce of 0 bfloat16 (max) on \"world\" #11");
  EXPECT_EQ(recent.back(), "all_reduce of 0 bfloat16 (max) on \"world\" #30");

  endpoint->set_status(7, "a phase with a name of more than 31 bytes", "bucket 5");
  endpoint->fail(std::string(5000, 'x'), 6);
  const RankStatus status = region->status(0);
  EXPECT_EQ(status.step, 7);
  EXPECT_EQ(status.phase, "a phase with a name of more tha");
  EXPECT_EQ(status.detail, "bucket 5");
  EXPECT_EQ(status.error.size(), 4000u);
  EXPECT_EQ(status.exit_code, 6);
  EXPECT_FALSE(status.finished);
  EXPECT_EQ(status.pid, getpid());
  EXPECT_TRUE(region->aborted());
  region->abort("too late");
  EXPECT_THAT(region->abort_message(), HasSubstr("rank 0 failed: xxx"));
}

TEST(Region, TellsWhichCallARankWaitsIn) {
  run_on(Engine::threads, 3, [](const std::shared_ptr<Group>& world) {
    const auto pair = world->subgroup({0, 2}, "dp");
    Region& region = world->endpoint().region();
    std::vector<float> data(100, 1);
    if (world->rank() == 2) {
      // Rank 0 may still be in the call before; then it comes to this one.
      std::vector<std::string> pending;
      while (pending.empty() || pending[0].find("all_reduce") == std::string::npos) {
        std::this_thread::yield();
        pending = region.pending_calls(0);
      }
      ASSERT_EQ(pending.size(), 1u);
      EXPECT_THAT(pending[0], HasSubstr("all_reduce of 100 float32 (sum) on \"dp\" #1, for "));
      EXPECT_THAT(pending[0], HasSubstr(" s, for rank 2"));
    }
    if (pair) pair->all_reduce(data.data(), 100, DType::f32);
    world->barrier();
    EXPECT_EQ(region.pending_calls(world->rank()).size(), 0u);
  });
}

TEST(Region, HasRoomForHundredsOfRanks) {
  const auto region = Region::in_process(512);
  const auto last = Endpoint::join(region, 511, true);
  const auto block = last->world()->allocate(100);
  std::memset(block.data(), 1, 100);
}

}  // namespace
}  // namespace lockstep::net::testing
