#include "tests/door/strangers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
using launch::Descriptor;

constexpr int kAtOnce = 50;
constexpr int kSlowAtOnce = 250;
constexpr int kDrips = 4;

void say(const Descriptor& connection, const std::string& bytes) {
  // Who is put out while it speaks has said enough.
  [[maybe_unused]] const ssize_t sent =
      ::send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string garbage(std::mt19937& random) {
  std::string bytes(1 + random() % 512, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string words_of(const Socket& socket, Stranger kind, std::mt19937& random) {
  switch (kind) {
    case Stranger::garbage:
      return garbage(random);
    case Stranger::truncated:
      return socket.expected.substr(0, 1 + random() % (socket.expected.size() - 1));
    case Stranger::huge:
      return socket.huge + std::string(64 << 10, 'x');
    case Stranger::replayed:
      return socket.replayed;
    case Stranger::drip:
    case Stranger::silent:
    case Stranger::reset:
      break;
  }
  return "";
}

/// Until the other end has closed the connection, or 20 ms after the first of them was asked.
void wait_to_be_put_out(const std::vector<Descriptor>& connections) {
  const auto deadline = std::chrono::steady_clock::now() + 20ms;
  for (const Descriptor& connection : connections) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{.fd = connection.get(), .events = POLLRDHUP, .revents = 0};
    ::poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  }
}

}  // namespace

int send_strangers(const Socket& socket, Stranger kind, int count, std::mt19937& random) {
  const bool slow = kind == Stranger::drip || kind == Stranger::silent;
  int connected = 0;
  for (int sent = 0; sent < count;) {
    std::vector<Descriptor> connections;
    for (int i = 0; i < (slow ? kSlowAtOnce : kAtOnce) && sent < count; ++i, ++sent) {
      Descriptor connection = socket.connect();
      if (connection.get() < 0) continue;
      ++connected;
      if (kind == Stranger::reset) continue;
      const std::string words = words_of(socket, kind, random);
      if (!words.empty()) say(connection, words);
      connections.push_back(std::move(connection));
    }
    for (int drip = 0; kind == Stranger::drip && drip < kDrips; ++drip) {
      for (const Descriptor& connection : connections)
        say(connection, socket.expected.substr(drip, 1));
      std::this_thread::sleep_for(50ms);
    }
    wait_to_be_put_out(connections);
  }
  return connected;
}

Descriptor connect_to_loopback(int port) {
  Descriptor connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Closed by a reset: no port of ours waits for stray packets, of which there are 28,000.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(connection.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    connection.reset();
  }
  return connection;
}

double seconds_until_closed(const Descriptor& connection) {
  const auto start = std::chrono::steady_clock::now();
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char said[4096];
  while (::recv(connection.get(), said, sizeof said, 0) > 0) {
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int descriptors_of(pid_t pid) {
  const std::filesystem::path folder = "/proc/" + std::to_string(pid) + "/fd";
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

int64_t resident_kib_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string name;
  for (int64_t kib = 0; status >> name; status.ignore(1024, '\n')) {
    if (name == "VmRSS:" && status >> kib) return kib;
  }
  return 0;
}

}  // namespace lockstep::testing
