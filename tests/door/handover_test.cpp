// Processes of the same user at the abstract socket where the ranks of a host meet.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/region_handover.h"
#include "lockstep/launch/region_handover_wire.h"
#include "tests/door/strangers.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using launch::Descriptor;
using launch::HandoverOptions;
namespace handover = launch::handover;

std::string new_key() {
  static int number = 0;
  return base::str("door of process ", getpid(), " number ", ++number);
}

HandoverOptions place(const std::string& key, int local_rank) {
  // Local rank 0 is there first and waits while strangers come; rank 1 finds it at once.
  return {.key = key,
          .rank = local_rank,
          .world_size = 2,
          .local_rank = local_rank,
          .local_size = 2,
          .started_by = "a test",
          .timeout = local_rank == 0 ? 60s : 5s};
}

/// Local rank 0 of two, in a thread. What it throws comes out of get().
std::future<launch::Received> host_of(const std::string& key) {
  return std::async(std::launch::async, [key] {
    return launch::hand_out(place(key, 0), net::Region::create(2, 1 << 20));
  });
}

Descriptor connect_as_stranger(const std::string& key) {
  auto connection = handover::connect_to(key);
  return connection ? std::move(*connection) : Descriptor();
}

/// The packet of a hello, as it travels.
std::string packet_of(const handover::Hello& hello) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor from(ends[0]);
  const Descriptor to(ends[1]);
  handover::send(from, hello);
  std::string bytes(64 << 10, '\0');
  bytes.resize(static_cast<size_t>(::recv(to.get(), bytes.data(), bytes.size(), 0)));
  return bytes;
}

/// What rank 1 said when it came: right in all but the nonce, which belonged to that connection.
std::string overheard_from_rank_1(const std::string& key) {
  handover::Hello hello{};
  hello.nonce = handover::receive_nonce(connect_as_stranger(key));
  hello.rank = hello.local_rank = 1;
  hello.world_size = hello.local_size = 2;
  hello.key = key;
  return packet_of(hello);
}

/// Two descriptors and a byte that is no packet.
void send_descriptors(const Descriptor& connection) {
  const std::array<int, 2> numbers = {STDIN_FILENO, STDERR_FILENO};
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof numbers)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof numbers);
  std::memcpy(CMSG_DATA(rights), numbers.data(), sizeof numbers);
  ::sendmsg(connection.get(), &message, MSG_NOSIGNAL);
}

/// Local rank 0 waits in a thread while they come; then rank 1 does, and both have one region.
void expect_handover_survives(int count) {
  const std::string key = new_key();
  const int descriptors = descriptors_of(getpid());
  auto host = host_of(key);
  Socket socket;
  socket.connect = [&] { return connect_as_stranger(key); };
  while (socket.connect().get() < 0) std::this_thread::yield();
  socket.replayed = overheard_from_rank_1(key);
  socket.expected = socket.replayed;
  socket.huge = socket.replayed.substr(0, 12) + std::string("\0\0\0\x80", 4);  // its text's length
  std::mt19937 random(11);
  for (const Stranger kind : kStrangers) send_strangers(socket, kind, count, random);
  for (int i = 0; i < count; ++i) {
    const Descriptor stranger = socket.connect();
    ASSERT_GE(stranger.get(), 0);
    handover::receive_nonce(stranger);
    send_descriptors(stranger);
    EXPECT_LT(seconds_until_closed(stranger), 4) << "as soon as it was read";
  }
  // The region, the listener, and those who are being put out.
  EXPECT_LE(descriptors_of(getpid()), descriptors + 80);
  {
    const launch::Received one = launch::take_over(place(key, 1));
    const launch::Received zero = host.get();
    zero.region->abort("seen by both");
    EXPECT_EQ(one.region->abort_message(), "seen by both");
  }
  EXPECT_EQ(descriptors_of(getpid()), descriptors);
}

TEST(Door, StrangersAtTheHandoverChangeNothing) { expect_handover_survives(1'000); }
TEST(LongDoor, StrangersAtTheHandoverChangeNothing) { expect_handover_survives(10'000); }

/// More who say nothing than are waited for at once: a rank among them comes again.
TEST(Door, ACrowdAtTheHandoverKeepsNoRankOut) {
  const std::string key = new_key();
  const int descriptors = descriptors_of(getpid());
  auto host = host_of(key);
  std::vector<Descriptor> crowd;
  while (crowd.size() < 200) {
    Descriptor stranger = connect_as_stranger(key);
    if (stranger.get() >= 0) crowd.push_back(std::move(stranger));
  }
  // Ours, those who are waited for, the region, the listener and one that is being accepted.
  EXPECT_LE(descriptors_of(getpid()), descriptors + 200 + 64 + 3);
  const auto start = std::chrono::steady_clock::now();
  const launch::Received one = launch::take_over(place(key, 1));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s) << "within the time of the silent";
  host.get();
  EXPECT_NE(one.region, nullptr);
}

TEST(LongDoor, WhoSaysNothingToTheHandoverIsPutOutAfterFiveSeconds) {
  const std::string key = new_key();
  auto host = host_of(key);
  Descriptor stranger;
  while (stranger.get() < 0) stranger = connect_as_stranger(key);
  EXPECT_NEAR(seconds_until_closed(stranger), 5, 1);
  launch::take_over(place(key, 1));
  host.get();
}

}  // namespace
}  // namespace lockstep::testing
