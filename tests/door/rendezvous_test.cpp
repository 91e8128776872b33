// Strangers at the port where the launchers of several nodes meet.

#include "lockstep/launch/rendezvous.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/free_port.h"
#include "tests/command/command.h"
#include "tests/door/strangers.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using launch::Descriptor;
using launch::NodeOptions;

const std::string kToken = "0123456789abcdef";

NodeOptions node(int rank, int port, std::chrono::milliseconds timeout = 20s) {
  NodeOptions options;
  options.nodes = 2;
  options.node_rank = rank;
  options.host = "127.0.0.1";
  options.port = port;
  options.token = kToken;
  options.timeout = timeout;
  return options;
}

/// What meeting came to: the world's size, or the error.
std::string outcome_of(const NodeOptions& options) {
  try {
    launch::Rendezvous rendezvous(options);
    return base::str("world of ", rendezvous.share().world_size);
  } catch (const Error& error) {
    return error.what();
  }
}

void expect_contains(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "no \"" << words << "\" in: " << text;
}

/// Passes on what two ends say to each other until one is gone; returns what `first` said.
std::string pass_on(const Descriptor& first, const Descriptor& second) {
  std::string said;
  std::array<pollfd, 2> ends = {pollfd{first.get(), POLLIN, 0}, pollfd{second.get(), POLLIN, 0}};
  std::array<char, 4096> piece;
  for (;;) {
    if (::poll(ends.data(), ends.size(), 20'000) <= 0) return said;
    for (const size_t from : {0, 1}) {
      if (ends[from].revents == 0) continue;
      const ssize_t got = ::recv(ends[from].fd, piece.data(), piece.size(), 0);
      if (got <= 0) return said;
      if (from == 0) said.append(piece.data(), static_cast<size_t>(got));
      ::send(ends[1 - from].fd, piece.data(), static_cast<size_t>(got), MSG_NOSIGNAL);
    }
  }
}

/// All that node 1 of a job with the token says until the job begins, overheard on the way.
std::string overheard_from_node_1() {
  const int port = launch::free_port();
  const int tap = launch::free_port();
  const Descriptor listener = launch::rendezvous::listen_on("127.0.0.1", tap);
  std::string said;
  std::thread between([&] {
    std::optional<Descriptor> comes;
    while (!(comes = launch::rendezvous::accept_from(listener))) std::this_thread::yield();
    Descriptor to_node_0;
    while (to_node_0.get() < 0) to_node_0 = connect_to_loopback(port);
    said = pass_on(*comes, to_node_0);
  });
  std::thread zero([&] { EXPECT_EQ(outcome_of(node(0, port)), "world of 2"); });
  EXPECT_EQ(outcome_of(node(1, tap)), "world of 2");
  zero.join();
  between.join();
  return said;
}

Socket port_of_node_0(int port, const std::string& overheard) {
  Socket socket;
  socket.connect = [port] { return connect_to_loopback(port); };
  socket.expected = overheard;
  socket.huge = overheard.substr(0, 32) + std::string("\x80\0\0\0", 4);
  socket.replayed = overheard;
  return socket;
}

/// `lockstep run` of one node of two. Its rank says where it stands and adds with the others.
std::vector<std::string> launcher(int node, int port) {
  const std::string program =
      "echo rank $RANK of $WORLD_SIZE, token ${LOCKSTEP_JOB_TOKEN-none}; exec " +
      beside("test_rank") + " all_reduces 3 -1";
  return {"lockstep",     "run",
          "--nnodes",     "2",
          "--node-rank",  std::to_string(node),
          "--rendezvous", "127.0.0.1:" + std::to_string(port),
          "--timeout-s",  "100",
          "--",           "sh",
          "-c",           program};
}

/// A job on two nodes, to whose port `count` strangers of each kind come before node 1 does.
void expect_job_survives(int count) {
  const std::string overheard = overheard_from_node_1();
  const int port = launch::free_port();
  const Socket socket = port_of_node_0(port, overheard);
  const std::vector<std::string> token = {"LOCKSTEP_JOB_TOKEN=" + kToken};
  Command zero(launcher(0, port), token);
  ASSERT_TRUE(eventually([&] { return socket.connect().get() >= 0; }));
  std::mt19937 random(7);
  const int descriptors = descriptors_of(zero.pid());
  const int most = descriptors + 64 + 1;  // at the door, and one that is being let to it
  // Once before memory is measured: code and buffers that are used for the first time.
  for (const Stranger kind : kStrangers) send_strangers(socket, kind, 100, random);
  const int64_t kib = resident_kib_of(zero.pid());
  for (const Stranger kind : kStrangers) {
    ASSERT_EQ(send_strangers(socket, kind, count, random), count);
    EXPECT_LE(descriptors_of(zero.pid()), most);
  }
  EXPECT_TRUE(eventually([&] { return descriptors_of(zero.pid()) <= descriptors; }));
  EXPECT_LT(resident_kib_of(zero.pid()), kib + 1024);

  // From here on strangers sit at the door and drip, until the job is over.
  std::vector<Descriptor> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(socket.connect());
  EXPECT_TRUE(eventually([&] { return descriptors_of(zero.pid()) > descriptors + 32; }));
  EXPECT_LE(descriptors_of(zero.pid()), most);
  std::atomic<bool> over = false;
  std::thread crowd([&] {
    while (!over) send_strangers(socket, Stranger::drip, 250, random);
  });
  const CommandResult one = Command(launcher(1, port), token).wait();
  const CommandResult first = zero.wait();
  over = true;
  crowd.join();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(first.out, "rank 0 of 2, token none\n");
  EXPECT_EQ(one.out, "rank 1 of 2, token none\n");
  EXPECT_EQ(first.err + one.err, "");
  EXPECT_LT(one.seconds, 10);
}

TEST(Door, StrangersAtTheRendezvousChangeNothing) { expect_job_survives(1'000); }
TEST(LongDoor, StrangersAtTheRendezvousChangeNothing) { expect_job_survives(10'000); }

TEST(Door, WhatWasOverheardLetsNobodyIn) {
  const std::string overheard = overheard_from_node_1();
  const int port = launch::free_port();
  std::string zero;
  std::thread waits([&] { zero = outcome_of(node(0, port, 500ms)); });
  Descriptor stranger;
  while (stranger.get() < 0) stranger = connect_to_loopback(port);
  ASSERT_EQ(::send(stranger.get(), overheard.data(), overheard.size(), MSG_NOSIGNAL),
            std::ssize(overheard));
  waits.join();
  expect_contains(zero, "after 0.5 s node 1 has not come");
  expect_contains(zero, "it does not know the job token of this launcher");
}

TEST(Door, AnotherTokenIsToldSoAtOnce) {
  const int port = launch::free_port();
  NodeOptions stranger = node(1, port);
  stranger.token = "0123456789abcdeF";
  std::string zero;
  std::thread waits([&] { zero = outcome_of(node(0, port, 500ms)); });
  expect_contains(outcome_of(stranger), "it says that this launcher has another job token");
  waits.join();
  expect_contains(zero, "it does not know the job token of this launcher");
}

TEST(Door, AnAnnouncementBeyondTheCapEndsTheConnectionAtOnce) {
  const int port = launch::free_port();
  std::thread zero([&] { outcome_of(node(0, port, 2s)); });
  Descriptor stranger;
  while (stranger.get() < 0) stranger = connect_to_loopback(port);
  const std::string words = std::string("lockstep-nodes\0\x02", 16) + std::string(16, 'n') +
                            std::string("\0\0\x10\x01", 4);  // 4 KiB and a byte
  ::send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL);
  EXPECT_LT(seconds_until_closed(stranger), 1);
  EXPECT_EQ(outcome_of(node(1, port)), "world of 2");
  zero.join();
}

TEST(LongDoor, WhoSaysNothingToTheRendezvousIsPutOutAfterFiveSeconds) {
  const int port = launch::free_port();
  std::thread zero([&] { outcome_of(node(0, port)); });
  Descriptor stranger;
  while (stranger.get() < 0) stranger = connect_to_loopback(port);
  EXPECT_NEAR(seconds_until_closed(stranger), 5, 1);
  EXPECT_EQ(outcome_of(node(1, port)), "world of 2");
  zero.join();
}

/// Node 1 believes nobody either: here somebody without the token listens in place of node 0.
TEST(Door, ANodeDoesNotBelieveAListenerWithoutTheToken) {
  const int port = launch::free_port();
  const Descriptor listener = launch::rendezvous::listen_on("127.0.0.1", port);
  std::string one;
  std::thread comes([&] { one = outcome_of(node(1, port)); });
  std::optional<Descriptor> connection;
  while (!(connection = launch::rendezvous::accept_from(listener))) std::this_thread::yield();
  const std::string start = R"({"type":"start","first_rank":0,"world_size":9})";
  const std::string reply = std::string("lockstep-nodes\0\x02", 16) + std::string(16, 'n') +
                            std::string("\0\0\0", 3) + static_cast<char>(start.size()) + start +
                            std::string(32, 't');
  ::send(connection->get(), reply.data(), reply.size(), MSG_NOSIGNAL);
  comes.join();
  expect_contains(one, "it does not know the job token of this launcher");
}

/// Whoever knows the token may still be of another make.
TEST(Door, AStartThatCannotBeReadIsRefusedInWords) {
  for (const char* start :
       {R"({"type":"start"})", R"({"type":"start","first_rank":"0","world_size":2})"}) {
    const int port = launch::free_port();
    const Descriptor listener = launch::rendezvous::listen_on("127.0.0.1", port);
    std::string one;
    std::thread comes([&] { one = outcome_of(node(1, port)); });
    std::optional<Descriptor> connection;
    while (!(connection = launch::rendezvous::accept_from(listener))) std::this_thread::yield();
    launch::rendezvous::Channel channel(std::move(*connection), launch::rendezvous::Side::listens,
                                        kToken);
    while (!channel.greet()) std::this_thread::yield();
    while (!channel.receive()) std::this_thread::yield();  // its hello
    channel.send({{"type", "welcome"}});
    channel.send(nlohmann::json::parse(start));
    comes.join();
    expect_contains(one, "in words that this node does not know");
  }
}

TEST(Door, OnlyTheLoopbackGoesWithoutAToken) {
  NodeOptions options = node(0, 1);
  options.token = "";
  for (const char* host : {"0.0.0.0", "192.0.2.1", "::"}) {
    options.host = host;
    expect_contains(outcome_of(options), "others reach this address too");
    expect_contains(outcome_of(options), "openssl rand -hex 16");
  }
  options.token = "short";
  expect_contains(outcome_of(options), "the job token has 5 bytes: must be 16 to 1024.");
}

TEST(Door, TheAddressGivenIsTheOnlyOneListenedOn) {
  const int port = launch::free_port();
  const Descriptor listener = launch::rendezvous::listen_on("127.0.0.2", port);
  EXPECT_LT(connect_to_loopback(port).get(), 0) << "127.0.0.1 is another address";
}

TEST(Door, TheTokenMayComeFromAFile) {
  const TempFolder folder;
  const std::string file = folder.file("token");
  const auto outcome_with = [&](const std::string& text, std::filesystem::perms mode) {
    std::ofstream(file) << text;
    std::filesystem::permissions(file, mode);
    return lockstep({"run", "--nnodes", "2", "--node-rank", "1", "--rendezvous",
                     "127.0.0.1:" + std::to_string(launch::free_port()), "--timeout-s", "0.1",
                     "--rendezvous-token-file", file, "--", "true"});
  };
  using std::filesystem::perms;
  const perms own = perms::owner_read | perms::owner_write;
  EXPECT_EQ(outcome_with(kToken + "\n", own).exit_code, 5) << "read; node 0 does not come";
  const CommandResult open = outcome_with(kToken, own | perms::others_read);
  EXPECT_EQ(open.exit_code, 2);
  expect_contains(open.err, "every user of this machine can read or change it");
  const CommandResult empty = outcome_with("\n", own);
  EXPECT_EQ(empty.exit_code, 2);
  expect_contains(empty.err, "it is empty");
  std::filesystem::remove(file);
  const CommandResult missing =
      lockstep({"run", "--nnodes", "2", "--node-rank", "1", "--rendezvous", "127.0.0.1:1",
                "--rendezvous-token-file", file, "--", "true"});
  EXPECT_EQ(missing.exit_code, 3);
}

}  // namespace
}  // namespace lockstep::testing
