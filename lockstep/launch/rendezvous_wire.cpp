#include "lockstep/launch/rendezvous_wire.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::launch::rendezvous {
namespace {

constexpr int kPatienceSeconds = 5;  // for a connection, and for what is sent on one

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
  set_option(connection, SOL_SOCKET, SO_SNDTIMEO, patience);
  set_option(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(connection, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(connection, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(connection, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

bool is_loopback(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port, 0);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    if (!is_loopback(*at->ai_addr)) return false;
  }
  return true;
}

Descriptor listen_on(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port, AI_PASSIVE);
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
  throw EnvironmentError(
      base::str("node 0 cannot listen on ", host, ":", port, ": ", std::strerror(reason),
                reason == EADDRNOTAVAIL
                    ? ".\n  --rendezvous names an address of the node that has --node-rank 0."
                    : ".\n  Choose another port in --rendezvous, on all nodes."));
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

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

bool wait_readable(int fd, Clock::time_point deadline) {
  for (;;) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, milliseconds_until(deadline)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace lockstep::launch::rendezvous
