// /metrics: the page, the server that shows it, and a scrape of a run under way.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/train/metrics_page.h"
#include "lockstep/train/metrics_server.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

/// "name{labels}" -> value, of each line that is no comment; fails the test for a line that is
/// neither.
std::map<std::string, double> samples_of(const std::string& page) {
  std::map<std::string, double> samples;
  EXPECT_TRUE(page.ends_with('\n'));
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) continue;
    const size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    EXPECT_TRUE(line.starts_with("lockstep_")) << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space))).second)
        << "twice: " << line;
  }
  return samples;
}

class Client {
 public:
  explicit Client(const std::string& url) {
    const std::string place = url.substr(std::string("http://").size());
    const size_t colon = place.find(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(place.substr(colon + 1))));
    inet_pton(AF_INET, place.substr(0, colon).c_str(), &to.sin_addr);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { close(fd_); }
  bool connected() const { return connected_; }
  void say(const std::string& text) const {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  /// Everything up to the end of the connection.
  std::string hear() const {
    std::string all;
    char piece[4096];
    for (ssize_t n; (n = recv(fd_, piece, sizeof piece, 0)) > 0;) all.append(piece, n);
    return all;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

std::string ask(const std::string& url, const std::string& request) {
  const Client client(url);
  client.say(request);
  return client.hear();
}

TEST(MetricsPage, TotalsAddUpAndGaugesAreTheLast) {
  MetricsPage page(2, "shm");
  EXPECT_EQ(samples_of(page.text()).count("lockstep_loss"), 0u) << "no step, no loss";
  StepReport report{.step = 1, .loss = 4, .seconds = 0.2, .tokens = 100, .comm_bytes = 8};
  report.phases[0] = 0.25;
  page.step(report);
  report.step = 2;
  report.loss = 3;
  report.memory[0] = 4096;
  page.step(report);
  page.evaluation(2.5);
  const auto samples = samples_of(page.text());
  EXPECT_EQ(samples.at("lockstep_steps_total"), 2);
  EXPECT_EQ(samples.at("lockstep_tokens_total"), 200);
  EXPECT_EQ(samples.at("lockstep_loss"), 3);
  EXPECT_EQ(samples.at("lockstep_validation_loss"), 2.5);
  EXPECT_EQ(samples.at("lockstep_comm_bytes_total{engine=\"shm\"}"), 16);
  EXPECT_EQ(samples.at("lockstep_data_wait_seconds_total"), 0.5);
  EXPECT_EQ(samples.at("lockstep_phase_seconds_total{phase=\"data\"}"), 0.5);
  EXPECT_EQ(samples.at("lockstep_memory_bytes{kind=\"parameters\"}"), 4096);
  EXPECT_EQ(samples.at("lockstep_step_duration_seconds_bucket{le=\"0.25\"}"), 2);
  EXPECT_EQ(samples.at("lockstep_step_duration_seconds_bucket{le=\"0.1\"}"), 0);
  EXPECT_EQ(samples.at("lockstep_ranks"), 2);
}

TEST(MetricsServer, AnswersWhatHttpAsks) {
  const MetricsServer server("127.0.0.1:0", [] { return std::string("lockstep_loss 1\n"); });
  const std::string good = ask(server.url(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(good.starts_with("HTTP/1.1 200 OK\r\n")) << good;
  EXPECT_NE(good.find("Content-Type: text/plain; version=0.0.4"), std::string::npos) << good;
  EXPECT_NE(good.find("Content-Length: 16\r\n"), std::string::npos) << good;
  EXPECT_TRUE(good.ends_with("\r\n\r\nlockstep_loss 1\n")) << good;
  EXPECT_TRUE(ask(server.url(), "HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
  EXPECT_TRUE(ask(server.url(), "GET /metrics?x=1 HTTP/1.0\n\n").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(ask(server.url(), "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(ask(server.url(), "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(ask(server.url(), "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
  EXPECT_EQ(ask(server.url(), std::string(8193, 'x') + std::string(2000, 'y')).find("200 OK"),
            std::string::npos)
      << "a request without end";
}

TEST(MetricsServer, ATakenPortIsAnErrorThatNamesTheAddress) {
  const MetricsServer first("127.0.0.1:0", [] { return std::string(); });
  std::string address = first.url().substr(std::string("http://").size());
  address.resize(address.find('/'));
  try {
    const MetricsServer second(address, [] { return std::string(); });
    FAIL() << "two servers at " << address;
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find(address), std::string::npos) << error.what();
    EXPECT_EQ(error.exit_code(), 3);
  }
  EXPECT_THROW(MetricsServer("no-such-host.invalid:0", [] { return std::string(); }),
               EnvironmentError);
}

/// A client that says nothing holds the server for its two seconds at most, and its end not at all.
TEST(MetricsServer, ASilentClientNeitherStopsOthersNorTheEnd) {
  auto server = std::make_unique<MetricsServer>("127.0.0.1:0", [] { return std::string("ok\n"); });
  const Client silent(server->url());
  silent.say("GET /metr");
  EXPECT_TRUE(ask(server->url(), "GET /metrics HTTP/1.1\r\n\r\n").ends_with("ok\n"));
  const Client second(server->url());
  second.say("G");
  const auto start = std::chrono::steady_clock::now();
  const std::string url = server->url();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_FALSE(Client(url).connected()) << "the port is free again";
}

TEST(MetricsServer, LeavesNoDescriptorAndNoThread) {
  const auto count = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  // A thread that was joined is in /proc for a moment longer, and a sanitizer starts one of its own
  // beside the first.
  const auto threads_become = [&](auto wanted) {
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (count("/proc/self/task") != wanted && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(1ms);
    }
    return count("/proc/self/task") == wanted;
  };
  std::thread([] {}).join();
  std::this_thread::sleep_for(50ms);
  const auto descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
  for (int i = 0; i < 3; ++i) {
    const MetricsServer server("127.0.0.1:0", [] { return std::string("x\n"); });
    EXPECT_TRUE(threads_become(threads + 1));
    ask(server.url(), "GET /metrics HTTP/1.1\r\n\r\n");
  }
  EXPECT_EQ(count("/proc/self/fd"), descriptors);
  EXPECT_TRUE(threads_become(threads));
}

}  // namespace
}  // namespace lockstep
