/// Serves one page, GET /metrics, over HTTP: for Prometheus, on request only.
///
/// One thread (`ls-metrics`) serves one client at a time and gives each at most two seconds and 8
/// KiB of request: a slow or hostile one delays other scrapes, never training, and never the end of
/// the run. The page is made in that thread.
#pragma once

#include <cstdint>
#include <functional>
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
  void serve();
  void answer(int client);
  /// False: no time is left, or the server stops.
  bool wait_for(int fd, short events, int64_t deadline_ms) const;

  std::function<std::string()> page_;
  std::string url_;
  int listener_ = -1;
  int wake_ = -1;  // an event; readable: stop
  std::thread thread_;
};

}  // namespace lockstep
