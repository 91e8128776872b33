#include "lockstep/train/metrics_server.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/prometheus.h"

namespace lockstep {
namespace {

constexpr int64_t kClientMs = 2000;
constexpr size_t kLongestRequest = 8192;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void refuse(const std::string& address, const char* reason) {
  throw EnvironmentError(
      base::str("log.http = \"", address, "\" cannot be served: ", reason,
                ".\n  Another port: --set log.http=127.0.0.1:0 takes a free one."));
}

/// A socket that listens at `address`.
int listen_at(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);  // [::1]
  if (host.empty()) refuse(address, "it is not HOST:PORT");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (code != 0) refuse(address, gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) refuse(address, std::strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 16) != 0) {
    const int reason = errno;
    close(fd);
    refuse(address, std::strerror(reason));
  }
  return fd;
}

int port_of(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  std::array<char, NI_MAXSERV> port{};
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length);
  getnameinfo(reinterpret_cast<sockaddr*>(&name), length, nullptr, 0, port.data(), port.size(),
              NI_NUMERICSERV);
  return std::atoi(port.data());
}

std::string response(const char* status, const char* type, const std::string& body,
                     bool with_body) {
  return base::str("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                   "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n",
                   with_body ? body : "");
}

/// The answer to a request's head.
std::string response_to(const std::string& request, const std::function<std::string()>& page) {
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  const std::string line = request.substr(0, request.find_first_of("\r\n"));
  const size_t space = line.find(' ');
  const std::string method = line.substr(0, space);
  const std::string target = space == std::string::npos
                                 ? ""
                                 : line.substr(space + 1, line.find(' ', space + 1) - space - 1);
  if (target.empty() || target[0] != '/') {
    return response("400 Bad Request", kPlain, "no request\n", true);
  }
  if (method != "GET" && method != "HEAD") {
    return response("405 Method Not Allowed", kPlain, "GET only\n", true);
  }
  const bool with_body = method == "GET";
  if (target.substr(0, target.find('?')) != "/metrics") {
    return response("404 Not Found", kPlain, "it is at /metrics\n", with_body);
  }
  return response("200 OK", files::kPrometheusContentType, page(), with_body);
}

}  // namespace

MetricsServer::MetricsServer(const std::string& address, std::function<std::string()> page)
    : page_(std::move(page)), listener_(listen_at(address)) {
  url_ = base::str("http://", address.substr(0, address.rfind(':')), ":", port_of(listener_),
                   "/metrics");
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) {
    const int reason = errno;
    close(listener_);
    refuse(address, std::strerror(reason));
  }
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "ls-metrics");
    serve();
  });
}

MetricsServer::~MetricsServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  thread_.join();
  close(listener_);
  close(wake_);
}

bool MetricsServer::wait_for(int fd, short events, int64_t deadline_ms) const {
  while (true) {
    const int64_t left = deadline_ms < 0 ? -1 : deadline_ms - now_ms();
    if (deadline_ms >= 0 && left <= 0) return false;
    std::array<pollfd, 2> polled = {pollfd{fd, events, 0}, pollfd{wake_, POLLIN, 0}};
    const int count = poll(polled.data(), polled.size(), static_cast<int>(left));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || polled[1].revents != 0) return false;
    return true;
  }
}

void MetricsServer::serve() {
  while (wait_for(listener_, POLLIN, -1)) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) {
      // Out of descriptors, say: the connection stays in the queue, and asking at once would spin.
      if (errno != EAGAIN && errno != ECONNABORTED) wait_for(wake_, POLLIN, now_ms() + 100);
      continue;
    }
    answer(client);
    close(client);
  }
}

void MetricsServer::answer(int client) {
  const int64_t deadline = now_ms() + kClientMs;
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos &&
         request.find("\n\n") == std::string::npos) {
    if (request.size() > kLongestRequest || !wait_for(client, POLLIN, deadline)) return;
    std::array<char, 1024> piece{};
    const ssize_t n = recv(client, piece.data(), piece.size(), 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return;
    request.append(piece.data(), static_cast<size_t>(n));
  }
  const std::string reply = response_to(request, page_);
  size_t sent = 0;
  while (sent < reply.size() && wait_for(client, POLLOUT, deadline)) {
    const ssize_t n = send(client, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

}  // namespace lockstep
