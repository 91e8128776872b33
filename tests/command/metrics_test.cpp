// What a run shows while it lives: /metrics over a free port, and figures that stay flat.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <thread>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

/// The answer of 127.0.0.1 to a GET, empty if nobody listens.
std::string get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) == std::ssize(request)) {
      char piece[4096];
      for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;) answer.append(piece, n);
    }
  }
  close(fd);
  return answer;
}

TEST(Metrics, AScrapeOfARunOnTwoRanksSeesItGoOn) {
  const TempFolder runs;
  Command job({"lockstep", "train", "--preset", "nano", "-n", "2", "--set", "run.steps=100000",
               "--set", "log.eval_every=0", "--set", "log.http=127.0.0.1:0", "--set",
               "run.dir=" + runs.path()});
  int port = 0;
  ASSERT_TRUE(eventually([&] {
    std::smatch found;
    const std::string err = job.errors_so_far();
    if (!std::regex_search(err, found,
                           std::regex("metrics at http://127.0.0.1:([0-9]+)/metrics"))) {
      return false;
    }
    port = std::stoi(found[1]);
    return true;
  })) << job.errors_so_far();
  const auto steps = [&] {
    std::smatch found;
    const std::string page = get(port, "/metrics");
    const bool there =
        std::regex_search(page, found, std::regex("\nlockstep_steps_total ([0-9]+)\n"));
    return there ? std::stoi(found[1]) : -1;
  };
  ASSERT_TRUE(eventually([&] { return steps() >= 2; }));
  const int before = steps();
  EXPECT_TRUE(eventually([&] { return steps() > before; }));
  const std::string page = get(port, "/metrics");
  for (const char* part :
       {"HTTP/1.1 200 OK\r\n", "# TYPE lockstep_loss gauge\nlockstep_loss ", "\nlockstep_ranks 2\n",
        "lockstep_memory_bytes{kind=\"activations\"} "}) {
    EXPECT_NE(page.find(part), std::string::npos) << page;
  }
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 75);
  EXPECT_EQ(get(port, "/metrics"), "") << "the port is still open";
}

TEST(Metrics, AnAddressThatIsTakenEndsTheRunBeforeItTrains) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  const TempFolder runs;
  const CommandResult result = lockstep({"train", "--preset", "nano", "-n", "2", "--set",
                                         "log.http=" + address, "--set", "run.dir=" + runs.path()});
  close(fd);
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find(address), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("step 1/"), std::string::npos) << result.err;
  for (const auto& run : fs::directory_iterator(runs.path())) {
    EXPECT_FALSE(fs::exists(run.path() / "final.safetensors"));
  }
}

TEST(Metrics, TheProfileStandsOnStderrAndInTheRunFolder) {
  const TempFolder runs;
  const CommandResult result =
      lockstep({"train", "--preset", "nano", "-n", "2", "--profile", "--set", "run.steps=6",
                "--set", "run.dir=" + runs.path()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("h.3.mlp.c_proj"), std::string::npos) << result.err;
  for (const auto& run : fs::directory_iterator(runs.path())) {
    std::ifstream in(run.path() / "profile.json");
    const auto profile = nlohmann::json::parse(in);
    EXPECT_EQ(profile["steps"], 5);
  }
}

}  // namespace
}  // namespace lockstep::testing
