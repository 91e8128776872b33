/// Hosts that are not there: each has a region of its own, and ranks of different hosts reach each
/// other only by a wire, an engine of messages in this process's memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/net/transport.h"
#include "lockstep/net/world.h"
#include "tests/net/ranks.h"

namespace lockstep::net::testing {

/// What is on its way between the ranks of a job.
class Wire {
 public:
  /// `delay`: of each message of a group.
  explicit Wire(std::chrono::milliseconds delay = {}) : delay_(delay) {}

  using Lane = std::tuple<int, int, int>;  // group (-1: control), from, to

  void put(const Lane& lane, std::string message) {
    const std::lock_guard lock(mutex_);
    const bool is_control = std::get<0>(lane) < 0;
    if (!is_control) ++tensors_;
    const auto arrival = Clock::now() + (is_control ? Clock::duration(0) : delay_);
    lanes_[lane].push_back({std::move(message), arrival});
  }

  /// Messages of groups that it has carried.
  int64_t tensors() const { return tensors_; }

  bool take(const Lane& lane, std::string& message) {
    const std::lock_guard lock(mutex_);
    auto& waiting = lanes_[lane];
    if (waiting.empty() || waiting.front().arrival > Clock::now()) return false;
    message = std::move(waiting.front().bytes);
    waiting.pop_front();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Message {
    std::string bytes;
    Clock::time_point arrival;
  };

  const Clock::duration delay_;
  std::atomic<int64_t> tensors_{0};
  std::mutex mutex_;  // guards lanes_
  std::map<Lane, std::deque<Message>> lanes_;
};

class WireTransport final : public Transport {
 public:
  WireTransport(std::shared_ptr<Wire> wire, std::vector<int> members, int rank, int id)
      : wire_(std::move(wire)), members_(std::move(members)), rank_(rank), id_(id) {}

  void send(int peer, const void* data, int64_t bytes) override {
    wire_->put({id_, member(rank_), member(peer)},
               std::string(static_cast<const char*>(data), static_cast<size_t>(bytes)));
  }
  void receive(int peer, void* data, int64_t bytes) override {
    wanted_.push_back({peer, data, bytes});
  }
  bool progress() override {
    std::vector<bool> waits(members_.size());  // messages of one peer come in order
    std::vector<Wanted> left;
    for (const Wanted& wanted : wanted_) {
      std::string message;
      const auto peer = static_cast<size_t>(wanted.peer);
      if (waits[peer] || !wire_->take({id_, member(wanted.peer), member(rank_)}, message)) {
        waits[peer] = true;
        left.push_back(wanted);
        continue;
      }
      if (std::ssize(message) != wanted.bytes)
        throw std::runtime_error("a message of another size");
      if (wanted.bytes > 0) std::memcpy(wanted.data, message.data(), message.size());
      bytes_received_ += wanted.bytes;
      ++completions_;
    }
    wanted_ = std::move(left);
    return wanted_.empty();
  }
  bool awaits(int peer) const override {
    return std::any_of(wanted_.begin(), wanted_.end(),
                       [peer](const Wanted& wanted) { return wanted.peer == peer; });
  }
  void nap() override { std::this_thread::sleep_for(std::chrono::microseconds(20)); }
  void abandon() override { wanted_.clear(); }

 private:
  struct Wanted {
    int peer;
    void* data;
    int64_t bytes;
  };

  int member(int peer) const { return members_[static_cast<size_t>(peer)]; }

  const std::shared_ptr<Wire> wire_;
  const std::vector<int> members_;
  const int rank_;
  const int id_;
  std::vector<Wanted> wanted_;
};

class WireControl final : public ControlChannel {
 public:
  WireControl(std::shared_ptr<Wire> wire, int rank, int ranks)
      : wire_(std::move(wire)), rank_(rank), ranks_(ranks) {}

  void send(int to, std::string message) override {
    wire_->put({-1, rank_, to}, std::move(message));
  }
  bool receive(int& from, std::string& message) override {
    for (from = 0; from < ranks_; ++from) {
      if (wire_->take({-1, from, rank_}, message)) return true;
    }
    return false;
  }
  bool flush() override { return true; }

 private:
  const std::shared_ptr<Wire> wire_;
  const int rank_;
  const int ranks_;
};

class WireEngine final : public MessageEngine {
 public:
  WireEngine(std::shared_ptr<Wire> wire, int rank, int ranks)
      : wire_(std::move(wire)), rank_(rank), ranks_(ranks) {}

  const char* name() const override { return "wire"; }
  std::unique_ptr<Transport> connect(const std::vector<int>& members, int rank, int id,
                                     const Exchange&) override {
    return std::make_unique<WireTransport>(wire_, members, rank, id);
  }
  std::unique_ptr<ControlChannel> open_control() override {
    return std::make_unique<WireControl>(wire_, rank_, ranks_);
  }

 private:
  const std::shared_ptr<Wire> wire_;
  const int rank_;
  const int ranks_;
};

/// Runs `body` on `hosts` hosts of `ranks_per_host` threads and returns how each rank ended. Who
/// ends with an exception says so as a rank of a job does.
inline std::vector<Outcome> outcomes_on_hosts(
    int hosts, int ranks_per_host, const Body& body, EndpointOptions options = patient(),
    const std::shared_ptr<Wire>& wire = std::make_shared<Wire>()) {
  const int ranks = hosts * ranks_per_host;
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int host = 0; host < hosts; ++host) {
    const auto region = Region::in_process(ranks);
    std::vector<int> here;
    for (int i = 0; i < ranks_per_host; ++i) here.push_back(host * ranks_per_host + i);
    region->set_ranks_here(here);
    for (const int rank : here) {
      threads.emplace_back([&, region, rank, options]() mutable {
        options.engine = std::make_shared<WireEngine>(wire, rank, ranks);
        std::shared_ptr<Endpoint> endpoint;
        std::string& error = outcomes[static_cast<size_t>(rank)].error;
        error = error_of([&] {
          endpoint = Endpoint::join(region, rank, true, options);
          body(endpoint->world());
          endpoint->finish();
        });
        if (!error.empty() && endpoint) endpoint->fail(error, 1);
      });
    }
  }
  threads.clear();  // joins
  return outcomes;
}

/// The same; every rank must come to its end.
inline void run_on_hosts(int hosts, int ranks_per_host, const Body& body,
                         const EndpointOptions& options = patient()) {
  const auto outcomes = outcomes_on_hosts(hosts, ranks_per_host, body, options);
  for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r].error, "") << "rank " << r;
}

}  // namespace lockstep::net::testing
