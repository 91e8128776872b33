/// Serves one page, GET /metrics, over HTTP: for Prometheus, on request only.
///
/// One thread (`ls-metrics`) serves up to 16 clients from one poll, and gives each two seconds and
/// 8 KiB of request; one more puts the oldest out. A slow or hostile one delays neither scrapes of
/// others nor training nor the end of the run. The page is made in that thread.
///
/// Whoever reaches the address can read the page: it has no password.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <thread>

namespace lockstep {

class MetricsServer {
 public:
  /// Listens at once. `address` is HOST:PORT; port 0: a free one. Throws EnvironmentError naming
  /// the address and the reason. `page` is called in the server's thread.
  MetricsServer(const std::string& address, std::function<std::string()> page);
  /// Stops in the middle of whatever a client is doing, and joins.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// "http://127.0.0.1:43121/metrics", with the port that was taken.
  const std::string& url() const { return url_; }

 private:
  class Client;

  void serve();
  bool wait(const std::list<Client>& clients) const;
  void accept_one(std::list<Client>& clients) const;

  std::function<std::string()> page_;
  std::string url_;
  int listener_ = -1;
  int wake_ = -1;  // an event; readable: stop
  std::thread thread_;
};

}  // namespace lockstep
