#include "lockstep/launch/rendezvous_wire.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::launch::rendezvous {
namespace {

constexpr std::string_view kName = "lockstep-nodes";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = kName.size() + 6;
constexpr uint32_t kMostBytes = 1 << 20;
constexpr int kPatienceSeconds = 5;  // for the rest of a frame, and for a connection

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                 std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    throw EnvironmentError(base::str("--rendezvous ", host, ":", port, ": ", ::gai_strerror(code),
                                     ".\n  Every node must be able to reach node 0 by that name."));
  }
  return {found, &freeaddrinfo};
}

template <class Value>
void set_option(const Descriptor& socket, int level, int name, const Value& value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof value);
}

/// A node whose power is cut says nothing: the kernel asks after it.
void prepare(const Descriptor& connection) {
  const timeval patience{.tv_sec = kPatienceSeconds, .tv_usec = 0};
  set_option(connection, SOL_SOCKET, SO_RCVTIMEO, patience);
  set_option(connection, SOL_SOCKET, SO_SNDTIMEO, patience);
  set_option(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(connection, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(connection, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(connection, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void put(std::string& frame, uint32_t number, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    frame += static_cast<char>(number >> shift & 0xff);
  }
}

uint32_t number_at(const char* from, int bytes) {
  uint32_t number = 0;
  for (int i = 0; i < bytes; ++i) number = number << 8 | static_cast<unsigned char>(from[i]);
  return number;
}

void read_exactly(const Descriptor& connection, char* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::recv(connection.get(), to, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) throw Lost{"the connection was closed"};
    if (got < 0) throw Lost{base::str("the connection broke: ", std::strerror(errno))};
    to += got;
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace

Descriptor listen_on(const std::string& host, int port) {
  // A cluster's own name for a node often stands for one of several networks: all are listened on.
  const Addresses addresses = addresses_of(is_loopback(host) ? host : "", port, AI_PASSIVE);
  int reason = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Descriptor listener(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (listener.get() < 0) continue;
    set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(listener.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(listener.get(), SOMAXCONN) == 0) {
      return listener;
    }
    reason = errno;
  }
  throw EnvironmentError(base::str("node 0 cannot listen on port ", port, ": ",
                                   std::strerror(reason),
                                   ".\n  Choose another port in --rendezvous, on all nodes."));
}

std::optional<Descriptor> accept_from(const Descriptor& listener) {
  Descriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() < 0) return std::nullopt;
  prepare(connection);
  return connection;
}

std::optional<Descriptor> connect_to(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port, 0);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Descriptor connection(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connection.get() < 0) continue;
    prepare(connection);
    if (::connect(connection.get(), at->ai_addr, at->ai_addrlen) == 0) return connection;
  }
  return std::nullopt;
}

void send(const Descriptor& connection, const Message& message) {
  const std::string text = message.dump(-1, ' ', false, Message::error_handler_t::replace);
  std::string frame(kName);
  put(frame, kVersion, 2);
  put(frame, static_cast<uint32_t>(text.size()), 4);
  frame += text;
  size_t sent = 0;
  while (sent < frame.size()) {
    const ssize_t went =
        ::send(connection.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (went < 0 && errno == EINTR) continue;
    if (went < 0) throw Lost{base::str("the connection broke: ", std::strerror(errno))};
    sent += static_cast<size_t>(went);
  }
}

Message receive(const Descriptor& connection) {
  std::array<char, kHeadBytes> head;
  // The name first: whoever speaks another protocol may send fewer bytes than a head has.
  read_exactly(connection, head.data(), kName.size());
  if (std::string_view(head.data(), kName.size()) != kName) {
    throw Lost{"it does not speak Lockstep's protocol"};
  }
  read_exactly(connection, head.data() + kName.size(), kHeadBytes - kName.size());
  const uint32_t version = number_at(head.data() + kName.size(), 2);
  if (version != kVersion) {
    throw Lost{base::str("it speaks version ", version, " of the protocol, this launcher version ",
                         kVersion, "; install one version of Lockstep on all nodes")};
  }
  const uint32_t bytes = number_at(head.data() + kName.size() + 2, 4);
  if (bytes > kMostBytes) throw Lost{base::str("it announces a message of ", bytes, " bytes")};
  std::string text(bytes, '\0');
  read_exactly(connection, text.data(), bytes);
  Message message = Message::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!message.is_object()) throw Lost{"what it says is no message"};
  return message;
}

bool wait_readable(const Descriptor& connection, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = connection.get(), .events = POLLIN, .revents = 0};
    const int patience = static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
    if (::poll(&entry, 1, patience) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace lockstep::launch::rendezvous
