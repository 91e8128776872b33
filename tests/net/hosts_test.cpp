// Jobs whose ranks are on several hosts, each with a region of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/plan/collective_steps.h"
#include "tests/net/values.h"
#include "tests/net/wire.h"

namespace lockstep::net::testing {
namespace {

using plan::Algorithm;
using plan::Collective;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

EndpointOptions impatient() {
  EndpointOptions options = patient();
  options.timeout = milliseconds(700);
  return options;
}

void use(Group& group, Algorithm algorithm) {
  group.set_algorithms({.rules = {{Collective::all_reduce, algorithm}}, .hosts = {}});
}

/// Sums floats whose order of addition shows, and looks whether it was the tree's.
void expect_bits_of_the_tree(Group& group, int64_t count) {
  Buffer<float> x(group, count, true);
  x.fill(5, group.rank());
  group.all_reduce(x.data(), count, DType::f32);
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_TRUE(same_bits(x[i], expected<float>(ReduceOp::sum, group.size(), 5, i))) << i;
  }
}

TEST(Hosts, RanksKnowWhoSharesTheirHost) {
  run_on_hosts(3, 2, [](const std::shared_ptr<Group>& world) {
    const std::vector<std::vector<int>> all = {{0, 1}, {2, 3}, {4, 5}};
    EXPECT_EQ(world->hosts(), all);
    const auto some = world->subgroup({5, 1, 0}, "some");
    if (!some) return;
    const std::vector<std::vector<int>> of_it = {{1, 2}, {0}};
    EXPECT_EQ(some->hosts(), of_it);
  });
}

/// direct: 2 k (h-1)/h of the bytes leave each host of k ranks, hierarchical: 1/k of that.
TEST(Hosts, CountsWhatCrossesThemAsThePlanAndTheClosedFormSay) {
  constexpr int kHosts = 2;
  constexpr int kEach = 4;
  constexpr int64_t kCount = 64 * 1024;
  constexpr int64_t kBytes = kCount * int64_t{sizeof(float)};
  std::vector<int> host_of_rank(kHosts * kEach);
  for (int r = 0; r < kHosts * kEach; ++r) host_of_rank[static_cast<size_t>(r)] = r / kEach;
  run_on_hosts(kHosts, kEach, [&](const std::shared_ptr<Group>& world) {
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::hierarchical}) {
      use(*world, algorithm);
      world->reset_ledger();
      expect_bits_of_the_tree(*world, kCount);
      int64_t across = world->ledger()[Operation::all_reduce].across;
      EXPECT_GT(across, 0) << "every rank carries its share";
      const auto plan = algorithm == Algorithm::direct
                            ? plan::plan_all_reduce(algorithm, world->size(), kCount)
                            : plan::plan_hierarchical_all_reduce(world->hosts(), kCount);
      const auto uplinks = plan::bytes_over_uplink(plan, host_of_rank, sizeof(float));
      world->all_reduce(&across, 1, DType::i64);
      EXPECT_EQ(across, std::accumulate(uplinks.begin(), uplinks.end(), int64_t{0}));
      const int64_t direct = 2 * kEach * (kHosts - 1) * kBytes / kHosts;
      EXPECT_EQ(uplinks[0], algorithm == Algorithm::direct ? direct : direct / kEach);
    }
  });
}

TEST(Hosts, LargeSumsGoHostByHostUnlessTheTableSaysOtherwise) {
  run_on_hosts(2, 2, [](const std::shared_ptr<Group>& world) {
    const auto across = [&](int64_t count) {
      world->reset_ledger();
      expect_bits_of_the_tree(*world, count);
      int64_t bytes = world->ledger()[Operation::all_reduce].across;
      world->all_reduce(&bytes, 1, DType::i64);
      return bytes;
    };
    EXPECT_EQ(across(1000), 2 * 4 * 4000 / 2);            // direct, both ways
    EXPECT_EQ(across(100'000), 2 * 4 * 400'000 / 2 / 2);  // hierarchical
    use(*world, Algorithm::direct);
    EXPECT_EQ(across(100'000), 2 * 4 * 400'000 / 2);
  });
}

/// Hosts that are no subtrees of the sum take direct, and keep the bits.
TEST(Hosts, UnevenGroupsKeepTheTree) {
  run_on_hosts(2, 3, [](const std::shared_ptr<Group>& world) {
    expect_bits_of_the_tree(*world, 100'000);
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1, 4}, {5, 2}, {0, 3, 1, 4}}) {
      const auto group = world->subgroup(ranks, "uneven");
      if (group) expect_bits_of_the_tree(*group, 20'000);
    }
  });
}

TEST(Hosts, AGroupInsideAHostUsesItsMemoryAlone) {
  const auto wire = std::make_shared<Wire>();
  const auto outcomes = outcomes_on_hosts(
      2, 2,
      [](const std::shared_ptr<Group>& world) {
        const int first = world->rank() / 2 * 2;
        const auto inside = world->subgroup({first, first + 1}, "inside");
        expect_bits_of_the_tree(*inside, 100'000);
        EXPECT_EQ(inside->ledger().total().across, 0);
        // One pass over memory: half of the elements read from the peer, and stored to it.
        EXPECT_EQ(inside->ledger()[Operation::all_reduce].bytes, 2 * 50'000 * 4);
      },
      patient(), wire);
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(wire->tensors(), 0);
}

TEST(Hosts, TextsOfAnyLengthReachEveryone) {
  run_on_hosts(2, 2, [](const std::shared_ptr<Group>& world) {
    for (const size_t length : {size_t{0}, size_t{5}, size_t{100'000}}) {
      const auto text = [&](int rank) {
        return std::string(length + static_cast<size_t>(rank), static_cast<char>('a' + rank));
      };
      const auto all = world->gather_text(text(world->rank()));
      for (int r = 0; r < world->size(); ++r) EXPECT_EQ(all[static_cast<size_t>(r)], text(r));
    }
  });
}

TEST(Hosts, MessagesKeepTheirOrder) {
  run_on_hosts(2, 2, [](const std::shared_ptr<Group>& world) {
    const int opposite = (world->rank() + 2) % 4;
    std::vector<int64_t> large(300'000, world->rank());
    for (int64_t k = 0; k < 20; ++k) world->send(&k, 1, DType::i64, opposite, 7);
    world->send(large.data(), std::ssize(large), DType::i64, opposite, 8);
    for (int64_t k = 0; k < 20; ++k) {
      int64_t come = -1;
      world->recv(&come, 1, DType::i64, opposite, 7);
      EXPECT_EQ(come, k);
    }
    world->recv(large.data(), std::ssize(large), DType::i64, opposite, 8);
    EXPECT_EQ(large.front(), opposite);
    EXPECT_EQ(large.back(), opposite);
    EXPECT_EQ(world->ledger()[Operation::recv].across, 20 * 8 + 300'000 * 8);
  });
}

TEST(Hosts, AMessageOfAnotherTagIsAMismatch) {
  const auto outcomes = outcomes_on_hosts(2, 1, [](const std::shared_ptr<Group>& world) {
    int64_t x = 1;
    if (world->rank() == 0) world->send(&x, 1, DType::i64, 1, 7);
    if (world->rank() == 1) world->recv(&x, 1, DType::i64, 0, 8);
    world->barrier();
  });
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr("with tag 7"), HasSubstr("with tag 8")));
  EXPECT_THAT(outcomes[0].error, HasSubstr("with tag 7")) << "the sender learns of it";
}

TEST(Hosts, AMismatchNamesBothCallsOnAllHosts) {
  const auto outcomes = outcomes_on_hosts(2, 2, [](const std::shared_ptr<Group>& world) {
    float x = 1;
    if (world->rank() == 3) {
      world->broadcast(&x, 1, DType::f32, 0);
    } else {
      world->all_reduce(&x, 1, DType::f32);
    }
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("broadcast"), HasSubstr("all_reduce")));
  }
}

TEST(Hosts, AMissingRankIsNamedWithItsHostAndItsLastCall) {
  const auto outcomes = outcomes_on_hosts(
      2, 2,
      [](const std::shared_ptr<Group>& world) {
        world->endpoint().set_status(4, "backward");
        float x = 1;
        world->all_reduce(&x, 1, DType::f32);
        if (world->rank() == 3) std::this_thread::sleep_for(milliseconds(1500));
        world->barrier();
      },
      impatient());
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    EXPECT_THAT(outcomes[rank].error,
                AllOf(HasSubstr("no word from rank 3"), HasSubstr("Rank 3, on host "),
                      HasSubstr("backward of step 4: all_reduce of 1 float32 (sum)")));
  }
}

/// The timeout is for want of any word: a call may take longer while its data move.
TEST(Hosts, ASlowNetworkIsNoMissingRank) {
  const auto outcomes = outcomes_on_hosts(
      3, 1,
      [](const std::shared_ptr<Group>& world) {
        use(*world, Algorithm::ring);
        Buffer<float> x(*world, 300, true);
        for (float& value : std::span(x.data(), 300)) value = 1;
        const auto start = std::chrono::steady_clock::now();
        world->all_reduce(x.data(), 300, DType::f32);  // four rounds
        EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(1500));
        EXPECT_EQ(x[299], 3);
      },
      impatient(), std::make_shared<Wire>(milliseconds(400)));
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

TEST(Hosts, ARankThatFailsEndsThoseOfOtherHosts) {
  const auto started = std::chrono::steady_clock::now();
  const auto outcomes = outcomes_on_hosts(2, 2, [](const std::shared_ptr<Group>& world) {
    world->barrier();
    if (world->rank() == 1) throw std::runtime_error("the disk is full");
    const int first = world->rank() / 2 * 2;
    // Ranks 2 and 3 wait for each other alone, in a group inside their host.
    const auto pair = world->subgroup({first, first + 1}, "pair");
    pair->barrier();
  });
  for (const size_t rank : {size_t{0}, size_t{2}, size_t{3}}) {
    EXPECT_THAT(outcomes[rank].error, HasSubstr("the disk is full")) << rank;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(10));
}

TEST(Hosts, AnAbortOfTheLauncherIsPassedOn) {
  const auto outcomes = outcomes_on_hosts(2, 2, [](const std::shared_ptr<Group>& world) {
    world->barrier();
    // As a launcher does that sees a process of its host die.
    if (world->rank() == 1) return world->endpoint().region().abort("rank 1 was killed");
    for (;;) world->barrier();
  });
  for (const size_t rank : {size_t{0}, size_t{2}, size_t{3}}) {
    EXPECT_THAT(outcomes[rank].error, HasSubstr("rank 1 was killed")) << rank;
  }
}

TEST(Hosts, AnEngineThatKeepsToOneHostIsRefused) {
  class OneHost final : public MessageEngine {
   public:
    const char* name() const override { return "near"; }
    std::unique_ptr<Transport> connect(const std::vector<int>&, int, int,
                                       const Exchange&) override {
      return nullptr;
    }
  };
  const auto region = Region::in_process(2);
  region->set_ranks_here({1});
  EndpointOptions options = patient();
  options.engine = std::make_shared<OneHost>();
  EXPECT_THAT(error_of([&] { Endpoint::join(region, 1, true, options); }),
              AllOf(HasSubstr("engine near keeps to one host"), HasSubstr("comm.engine=mpi")));
}

TEST(Hosts, ARankThatDoesNotComeIsNamedAtTheStart) {
  const auto region = Region::in_process(3);
  region->set_ranks_here({1});
  EndpointOptions options = impatient();
  options.engine = std::make_shared<WireEngine>(std::make_shared<Wire>(), 1, 3);
  EXPECT_THAT(error_of([&] { Endpoint::join(region, 1, true, options); }),
              HasSubstr("no word from ranks 0 and 2 on other hosts for 0.7 s"));
}

}  // namespace
}  // namespace lockstep::net::testing
