// Launchers of several nodes, as threads of this process: they meet over the loopback.

#include "lockstep/launch/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/free_port.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

NodeOptions node(int rank, int nodes, int port, int ranks = 2,
                 std::chrono::milliseconds timeout = 20s) {
  NodeOptions options;
  options.nodes = nodes;
  options.node_rank = rank;
  options.host = "127.0.0.1";
  options.port = port;
  options.ranks = ranks;
  options.timeout = timeout;
  return options;
}

struct Outcome {
  std::string error;
  Share share;
  Verdict verdict;
};

using Work = std::function<void(Rendezvous&, Outcome&)>;

void take_share(Rendezvous& rendezvous, Outcome& outcome) { outcome.share = rendezvous.share(); }

/// What each node gets, all of them started at once.
std::vector<Outcome> meet(const std::vector<NodeOptions>& nodes, const Work& work = take_share,
                          const std::vector<std::chrono::milliseconds>& delays = {}) {
  std::vector<Outcome> outcomes(nodes.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < nodes.size(); ++i) {
    threads.emplace_back([&, i] {
      if (!delays.empty()) std::this_thread::sleep_for(delays[i]);
      try {
        Rendezvous rendezvous(nodes[i]);
        work(rendezvous, outcomes[i]);
      } catch (const Error& error) {
        outcomes[i].error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// Until all nodes are through.
Verdict end_of(Rendezvous& rendezvous) {
  for (;;) {
    if (auto verdict = rendezvous.verdict()) return *verdict;
    std::this_thread::yield();
  }
}

void expect_contains(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no \"" << words << "\" in: " << text;
}

// EL-5: ranks do not depend on the order of arrival.
TEST(Rendezvous, EL_5_RanksFollowTheNodesInWhateverOrderTheyArrive) {
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    const int port = free_port();
    const std::vector<std::chrono::milliseconds> delays = {
        std::chrono::milliseconds(random() % 100), std::chrono::milliseconds(random() % 100)};
    const auto outcomes = meet({node(0, 2, port), node(1, 2, port)}, take_share, delays);
    for (const int rank : {0, 1}) {
      ASSERT_EQ(outcomes[rank].error, "");
      EXPECT_EQ(outcomes[rank].share.first_rank, 2 * rank);
      EXPECT_EQ(outcomes[rank].share.world_size, 4);
      EXPECT_EQ(outcomes[rank].share.node_rank, rank);
    }
  }
}

TEST(Rendezvous, NodesMayDifferInRanksAndShareOneRegion) {
  const int port = free_port();
  const auto outcomes = meet({node(2, 3, port, 1), node(0, 3, port, 3), node(1, 3, port, 2)});
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.share.world_size, 6);
    EXPECT_EQ(outcome.share.master_host, "127.0.0.1");
    EXPECT_EQ(outcome.share.master_port, outcomes[0].share.master_port);
    EXPECT_EQ(outcome.share.job_id, outcomes[0].share.job_id);
    ASSERT_NE(outcome.share.region, nullptr);
    EXPECT_EQ(outcome.share.region->ranks(), 6);
  }
  EXPECT_EQ(outcomes[1].share.first_rank, 0);
  EXPECT_EQ(outcomes[2].share.first_rank, 3);
  EXPECT_EQ(outcomes[0].share.first_rank, 5);
  outcomes[0].share.region->abort("seen by all");
  EXPECT_EQ(outcomes[1].share.region->abort_message(), "seen by all");
}

TEST(Rendezvous, RefusesNodesThatWereToldOfAnotherJob) {
  const int port = free_port();
  NodeOptions other_restarts = node(1, 2, port);
  other_restarts.max_restarts = 3;
  const auto outcomes = meet({node(0, 2, port, 2, 400ms), node(1, 3, port), other_restarts});
  expect_contains(outcomes[0].error, "node 1 has not come; node 0 has");
  expect_contains(outcomes[0].error, "Turned away: ");
  expect_contains(outcomes[1].error, "says --nnodes 3, node 0 --nnodes 2");
  expect_contains(outcomes[2].error, "says --max-restarts 3, node 0 --max-restarts 0");
}

TEST(Rendezvous, RefusesTheSecondOfTwoWithOneRank) {
  const int port = free_port();
  const auto outcomes = meet({node(0, 3, port, 2, 400ms), node(1, 3, port), node(1, 3, port)});
  const std::string both = outcomes[1].error + outcomes[2].error;
  expect_contains(both, "--node-rank 1 has come twice");
  expect_contains(both, "after 0.4 s node 2 has not come; nodes 0 and 1 have");
}

TEST(Rendezvous, WaitsForNodeZeroNoLongerThanTheTimeout) {
  const auto outcomes = meet({node(1, 2, free_port(), 2, 200ms)});
  expect_contains(outcomes[0].error, "after 0.2 s node 0 does not listen; this is node 1 of 2");
}

TEST(Rendezvous, APortInUseIsSaidAtOnce) {
  const int port = free_port();
  const Descriptor other = rendezvous::listen_on("127.0.0.1", port);
  const auto outcomes = meet({node(0, 2, port)});
  expect_contains(outcomes[0].error, base::str("cannot listen on 127.0.0.1:", port));
}

TEST(Rendezvous, OtherProtocolsAndVersionsAreTurnedAway) {
  const int port = free_port();
  std::vector<Outcome> outcomes;
  std::thread nodes([&] { outcomes = meet({node(0, 2, port, 2, 1s)}); });
  const auto answer_to = [&](const std::string& bytes) {
    std::optional<Descriptor> connection;
    while (!(connection = rendezvous::connect_to("127.0.0.1", port))) std::this_thread::yield();
    ::send(connection->get(), bytes.data(), bytes.size(), 0);
    std::string answer;
    std::array<char, 64> piece;
    for (ssize_t got; (got = ::recv(connection->get(), piece.data(), piece.size(), 0)) > 0;) {
      answer.append(piece.data(), static_cast<size_t>(got));
    }
    return answer;
  };
  EXPECT_EQ(answer_to("GET / HTTP/1.1\r\n\r\n"), "");
  EXPECT_TRUE(answer_to(std::string("lockstep-nodes\0\x09", 16))
                  .starts_with(std::string("lockstep-nodes\0\x02", 16)));
  nodes.join();
  expect_contains(outcomes[0].error, "it speaks version 9 of the protocol");
}

TEST(Rendezvous, TheFirstCauseIsToldToAllNodes) {
  const int port = free_port();
  const auto outcomes =
      meet({node(0, 2, port), node(1, 2, port)}, [](Rendezvous& here, Outcome& o) {
        const Share share = here.share();
        if (share.node_rank == 1) {
          here.failed_here("rank 2 died");
          here.finished({7, "[rank 2 of 4] exited with code 7"}, false);
        } else {
          NodeEvent event;
          while (event.failure.empty()) event = here.poll();
          o.error = event.failure;
          here.finished({5, "[rank 0 of 4] an echo", /*first_hand=*/false}, false);
        }
        o.verdict = end_of(here);
      });
  expect_contains(outcomes[0].error, "rank 2 died");
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.verdict.again);
    EXPECT_EQ(outcome.verdict.result.exit_code, 7);
    expect_contains(outcome.verdict.result.error, "[rank 2 of 4] exited with code 7");
  }
  EXPECT_TRUE(outcomes[0].verdict.result.error.starts_with("node 1 ("));
  EXPECT_TRUE(outcomes[1].verdict.result.error.starts_with("[rank 2"));
}

TEST(Rendezvous, AllNodesStartAgainTogether) {
  const int port = free_port();
  std::vector<NodeOptions> nodes = {node(0, 2, port), node(1, 2, port)};
  for (NodeOptions& options : nodes) options.max_restarts = 3;
  const auto outcomes = meet(nodes, [](Rendezvous& here, Outcome& o) {
    for (int start = 0;; ++start) {
      o.share = here.share();
      const bool fails = start < 2 && o.share.node_rank == start % 2;
      here.finished(fails ? JobResult{1, "loss is nan"} : JobResult{}, false);
      o.verdict = end_of(here);
      if (!o.verdict.again) {
        o.error = std::to_string(start);
        return;
      }
      EXPECT_EQ(o.verdict.result.exit_code, 1);
    }
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(outcomes[rank].error, "2");  // starts 0 and 1 failed, on one node each
    EXPECT_EQ(outcomes[rank].share.first_rank, 2 * rank);
  }
}

TEST(Rendezvous, ALauncherThatIsGoneEndsTheJobOnAllNodes) {
  const int port = free_port();
  for (const int leaves : {0, 1}) {
    const auto outcomes =
        meet({node(0, 2, port), node(1, 2, port)}, [&](Rendezvous& here, Outcome& o) {
          if (here.share().node_rank == leaves) return;
          NodeEvent event;
          while (event.failure.empty()) event = here.poll();
          here.finished({4, event.failure, false}, false);
          o.verdict = end_of(here);
        });
    const Outcome& other = outcomes[1 - leaves];
    EXPECT_EQ(other.verdict.result.exit_code, 4);
    EXPECT_FALSE(other.verdict.again);
    expect_contains(other.verdict.result.error, base::str("the launcher of node ", leaves));
  }
}

TEST(Rendezvous, ReadsHostAndPort) {
  NodeOptions options;
  parse_rendezvous("node7:29400", options);
  EXPECT_EQ(options.host, "node7");
  EXPECT_EQ(options.port, 29400);
  parse_rendezvous("[::1]:1", options);
  EXPECT_EQ(options.host, "::1");
  for (const char* bad : {"", "node7", "node7:", ":29400", "node7:x", "node7:0", "node7:65536"}) {
    EXPECT_THROW(parse_rendezvous(bad, options), UsageError) << bad;
  }
}

}  // namespace
}  // namespace lockstep::launch
