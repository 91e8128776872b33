// One rank of a job with a fault planted in it:
//
//   planted_rank REGION_FD RANK TIMEOUT_MS [POINT PASS FAULT]
//
// makes a fixed sequence of calls of every kind. On its PASS-th way past POINT it is struck by
// FAULT: kill, stop, delay or exception. Prints how often it passed each point and a digest of all
// results; an error goes to stderr and to the other ranks, as of any rank.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/net/world.h"

namespace lockstep::net::testing {
namespace {

struct Plan {
  std::string point;
  int pass = 0;
  std::string fault;
};

/// Counts the points passed, and strikes.
class Planter {
 public:
  explicit Planter(Plan plan) : plan_(std::move(plan)) {}

  void operator()(Point point) {
    const int pass = ++passes_[static_cast<size_t>(point)];
    if (kPointNames[static_cast<size_t>(point)] != plan_.point || pass != plan_.pass) return;
    if (plan_.fault == "kill") raise(SIGKILL);
    if (plan_.fault == "stop") raise(SIGSTOP);
    if (plan_.fault == "delay") std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (plan_.fault == "exception") throw TrainingError("planted");
  }

  const std::array<int, kPointNames.size()>& passes() const { return passes_; }

 private:
  Plan plan_;
  std::array<int, kPointNames.size()> passes_{};
};

/// What is sent, received and summed, and the digest of all that came out.
class Calls {
 public:
  explicit Calls(const std::shared_ptr<Group>& world) : world_(world) {}

  void run() {
    world_->barrier();
    sum(*world_, 10, false);
    sum(*world_, 20'000, true);
    sum(*world_, 300'000, false);
    messages();
    gather_texts();
    pairs();
    plans();
    moves();
    world_->barrier();
    world_->barrier();
  }

  uint64_t digest() const { return digest_; }

 private:
  /// Memory of the heap, or of this process alone.
  int64_t* memory(Group& group, int64_t count, bool in_heap) {
    if (in_heap) {
      blocks_.push_back(group.allocate(count * int64_t{sizeof(int64_t)}));
      return static_cast<int64_t*>(blocks_.back().data());
    }
    own_.emplace_back(static_cast<size_t>(count));
    return own_.back().data();
  }

  int64_t* values(Group& group, int64_t count, bool in_heap) {
    int64_t* const x = memory(group, count, in_heap);
    for (int64_t i = 0; i < count; ++i) x[i] = i * 7 + group.rank() * 1000;
    return x;
  }

  void take(const void* data, int64_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (int64_t i = 0; i < bytes; ++i) digest_ = digest_ * 0x100000001b3 ^ at[i];
  }

  void sum(Group& group, int64_t count, bool in_heap) {
    int64_t* const x = values(group, count, in_heap);
    group.all_reduce(x, count, DType::i64);
    take(x, count * 8);
  }

  void messages() {
    Group& g = *world_;
    const int next = (g.rank() + 1) % g.size();
    const int previous = (g.rank() + g.size() - 1) % g.size();
    for (const int64_t count : {int64_t{100}, int64_t{600'000}}) {
      for (const bool in_heap : {true, false}) {
        int64_t* const x = values(g, count, in_heap);
        int64_t* const y = memory(g, count, in_heap);
        // Long messages wait for their receiver.
        if (g.rank() % 2 == 0) g.send(x, count, DType::i64, next);
        g.recv(y, count, DType::i64, previous);
        if (g.rank() % 2 == 1) g.send(x, count, DType::i64, next);
        take(y, count * 8);
      }
    }
  }

  void gather_texts() {
    for (const size_t length : {3, 3000}) {
      const std::string mine(length, static_cast<char>('a' + world_->rank()));
      for (const std::string& text : world_->gather_text(mine)) take(text.data(), std::ssize(text));
    }
  }

  void pairs() {
    const int r = world_->rank();
    const auto pair = world_->subgroup({r % 2, r % 2 + 2}, "pair");
    sum(*pair, 5, false);
    sum(*pair, 30'000, true);
    const auto again = pair->subgroup({1, 0}, "again");
    sum(*again, 30'000, false);
  }

  void plans() {
    using plan::Algorithm;
    using plan::Collective;
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::halving, Algorithm::tree}) {
      world_->set_algorithms({.rules = {{Collective::all_reduce, algorithm}}, .hosts = {}});
      sum(*world_, 50'000, algorithm == Algorithm::ring);
    }
    world_->set_algorithms({.rules = {{Collective::broadcast, Algorithm::binomial}}, .hosts = {}});
    int64_t* const x = values(*world_, 50'000, true);
    world_->broadcast(x, 50'000, DType::i64, 2);
    take(x, 50'000 * 8);
    world_->set_algorithms({});
  }

  void moves() {
    Group& g = *world_;
    const std::vector<int64_t> counts = {100'000, 0, 30'000, 20'000};
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    for (const bool in_heap : {true, false}) {
      const int64_t own = counts[static_cast<size_t>(g.rank())];
      int64_t* const x = values(g, all, in_heap);
      int64_t* const part = memory(g, all, in_heap);
      g.reduce_scatter(x, part, counts, DType::i64, ReduceOp::max);
      take(part, own * 8);
      g.all_gather(part, x, counts, DType::i64);
      take(x, all * 8);
      const std::vector<int64_t> equal(4, 25'000);
      g.all_to_all(x, equal, part, equal, DType::i64);
      take(part, 100'000 * 8);
      g.broadcast(x, all, DType::i64, 3);
      take(x, all * 8);
    }
  }

  std::shared_ptr<Group> world_;
  std::vector<HeapBlock> blocks_;
  std::vector<std::vector<int64_t>> own_;
  uint64_t digest_ = 0;
};

int run(int fd, int rank, std::chrono::milliseconds timeout, Plan plan) {
  Planter planter(std::move(plan));
  const EndpointOptions options = {
      .timeout = timeout, .oversubscribed = true, .at_point = std::ref(planter)};
  std::shared_ptr<Endpoint> endpoint;
  try {
    endpoint = Endpoint::join(Region::attach(fd), rank, /*direct_memory=*/false, options);
    Calls calls(endpoint->world());
    calls.run();
    endpoint->finish();
    std::string line = base::str("digest ", calls.digest());
    for (size_t p = 0; p < kPointNames.size(); ++p) {
      line += base::str(" ", kPointNames[p], " ", planter.passes()[p]);
    }
    std::puts(line.c_str());
    return 0;
  } catch (const Error& error) {
    if (endpoint) endpoint->fail(error.what(), error.exit_code());
    std::fputs(error.what(), stderr);
    return error.exit_code();
  }
}

}  // namespace
}  // namespace lockstep::net::testing

int main(int argc, char** argv) {
  if (argc != 4 && argc != 7) return 2;
  lockstep::net::testing::Plan plan;
  if (argc == 7) plan = {argv[4], std::stoi(argv[5]), argv[6]};
  return lockstep::net::testing::run(std::stoi(argv[1]), std::stoi(argv[2]),
                                     std::chrono::milliseconds(std::stoi(argv[3])), plan);
}
