// Strangers at the port of /metrics.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <vector>

#include "lockstep/train/metrics_server.h"
#include "tests/door/strangers.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using launch::Descriptor;

const std::string kRequest = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

int port_of(const MetricsServer& server) {
  return std::stoi(server.url().substr(server.url().rfind(':') + 1));
}

/// The answer to a scrape: empty if it did not come within 10 s.
std::string scrape(int port) {
  const Descriptor connection = connect_to_loopback(port);
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::send(connection.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 4096> piece;
  for (ssize_t n; (n = ::recv(connection.get(), piece.data(), piece.size(), 0)) > 0;) {
    answer.append(piece.data(), static_cast<size_t>(n));
  }
  return answer;
}

void expect_metrics_survive(int count) {
  const int descriptors = descriptors_of(getpid());
  {
    const MetricsServer server("127.0.0.1:0",
                               [] { return std::string("lockstep_steps_total 7\n"); });
    const int port = port_of(server);
    Socket socket;
    socket.connect = [port] { return connect_to_loopback(port); };
    socket.expected = socket.replayed = kRequest;
    socket.huge = "GET /metrics HTTP/1.1\r\nContent-Length: 2147483648\r\nX: ";
    std::mt19937 random(13);
    for (const Stranger kind : kStrangers) send_strangers(socket, kind, 100, random);
    const int64_t kib = resident_kib_of(getpid());
    for (const Stranger kind : kStrangers) {
      EXPECT_EQ(send_strangers(socket, kind, count, random), count);
      EXPECT_LE(descriptors_of(getpid()), descriptors + 3 + 16);
      EXPECT_TRUE(scrape(port).ends_with("\r\n\r\nlockstep_steps_total 7\n"));
    }
    EXPECT_LT(resident_kib_of(getpid()), kib + 1024);
  }
  EXPECT_EQ(descriptors_of(getpid()), descriptors);
}

TEST(Door, StrangersAtTheMetricsChangeNothing) { expect_metrics_survive(1'000); }
TEST(LongDoor, StrangersAtTheMetricsChangeNothing) { expect_metrics_survive(10'000); }

/// More who say nothing than are served at once: a scrape is answered all the same.
TEST(Door, ACrowdAtTheMetricsDelaysNoScrape) {
  const int descriptors = descriptors_of(getpid());
  const MetricsServer server("127.0.0.1:0", [] { return std::string("ok\n"); });
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(connect_to_loopback(port_of(server)));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(scrape(port_of(server)).ends_with("ok\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s)
      << "within the time of one that is silent";
  EXPECT_LE(descriptors_of(getpid()), descriptors + 40 + 16 + 3)
      << "ours, 16 served, its own two, one new";
}

}  // namespace
}  // namespace lockstep::testing
