#include "lockstep/train/metrics_server.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/prometheus.h"

namespace lockstep {

namespace {

constexpr int64_t kClientMs = 2000;
constexpr size_t kLongestRequest = 8192;
constexpr size_t kMostClients = 16;
constexpr int kNapMs = 100;

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
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
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

bool is_whole(const std::string& request) {
  return request.find("\r\n\r\n") != std::string::npos || request.find("\n\n") != std::string::npos;
}

/// Whether the last call on a socket may be made again when poll says so.
bool can_go_on() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

/// One that has connected, until it has its answer.
class MetricsServer::Client {
 public:
  explicit Client(int fd) : fd_(fd), deadline_ms_(now_ms() + kClientMs) {}
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  pollfd waits_for() const {
    return {fd_, static_cast<short>(reply_.empty() ? POLLIN : POLLOUT), 0};
  }
  int64_t ms_left() const { return std::max<int64_t>(deadline_ms_ - now_ms(), 0); }

  /// Reads and writes what can be at this moment. False: it is through, or no client of ours.
  bool go_on(const std::function<std::string()>& page) {
    while (reply_.empty()) {
      std::array<char, 1024> piece;
      const ssize_t n = recv(fd_, piece.data(), piece.size(), 0);
      if (n <= 0) return n < 0 && can_go_on();
      request_.append(piece.data(), static_cast<size_t>(n));
      if (is_whole(request_)) {
        reply_ = response_to(request_, page);
      } else if (request_.size() > kLongestRequest) {
        return false;
      }
    }
    while (sent_ < reply_.size()) {
      const ssize_t n = send(fd_, reply_.data() + sent_, reply_.size() - sent_, MSG_NOSIGNAL);
      if (n <= 0) return n < 0 && can_go_on();
      sent_ += static_cast<size_t>(n);
    }
    return false;
  }

 private:
  int fd_;
  int64_t deadline_ms_;
  std::string request_;
  std::string reply_;
  size_t sent_ = 0;
};

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

void MetricsServer::serve() {
  std::list<Client> clients;  // the oldest first
  while (wait(clients)) {
    std::erase_if(clients,
                  [&](Client& client) { return !client.go_on(page_) || client.ms_left() == 0; });
    accept_one(clients);
  }
}

/// Until somebody comes, one of the clients can go on, or the time of the oldest is over. False:
/// the server stops.
bool MetricsServer::wait(const std::list<Client>& clients) const {
  std::vector<pollfd> polled = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
  for (const Client& client : clients) polled.push_back(client.waits_for());
  const int64_t patience = clients.empty() ? -1 : clients.front().ms_left();
  poll(polled.data(), polled.size(), static_cast<int>(patience));
  return polled[0].revents == 0;
}

void MetricsServer::accept_one(std::list<Client>& clients) const {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    if (clients.size() == kMostClients) clients.pop_front();
    clients.emplace_back(fd);
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    // The connection stays in the queue, and asking at once would spin.
    if (!clients.empty()) clients.pop_front();
    pollfd stop{wake_, POLLIN, 0};
    poll(&stop, 1, kNapMs);
  }
}

}  // namespace lockstep
