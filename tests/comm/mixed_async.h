/// A seeded sequence of asynchronous calls on three groups, many under way at once, awaited in an
/// order of each rank's own. Every element of every result is checked.
#pragma once

#include <torch/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/process_group.h"
#include "tests/support/resident_memory.h"

namespace lockstep::test {

class MixedAsync {
 public:
  MixedAsync(const std::shared_ptr<net::Group>& world, uint64_t seed) : world_(world), seed_(seed) {
    const int n = world_.size();
    std::vector<int> back;
    for (int r = n - 1; r >= 0; --r) back.push_back(r);
    groups_ = {&world_};
    made_ = {world_.subgroup(back, "back"), world_.subgroup({0, n - 1}, "ends")};
    for (const auto& group : made_) groups_.push_back(group.get());
  }

  /// Calls number `done()` to `until` - 1. Throws std::runtime_error at the first wrong value.
  void run(int64_t until) {
    for (; done_ < until; ++done_) {
      draws_ = base::mix64(seed_ ^ static_cast<uint64_t>(done_));
      ProcessGroup* const group = groups_[next(groups_.size())];
      if (group != nullptr) start(*group);
      // Each rank has its own mind when to wait, and for what.
      own_draws_ = base::mix64(own_draws_ + static_cast<uint64_t>(world_.rank()) + 1);
      while (pending_.size() > own_draws_ % 24) finish(own_draws_ / 24 % pending_.size());
    }
    while (!pending_.empty()) finish(0);
  }

  /// `run`, and how many bytes more this process has at the end than after a tenth.
  int64_t growth(int64_t calls) {
    run(calls / 10);
    const int64_t early = testing::resident_bytes();
    run(calls);
    return testing::resident_bytes() - early;
  }

 private:
  struct Pending {
    Work work;
    at::Tensor got;
    at::Tensor wanted;
    std::string what;
  };

  uint64_t next(uint64_t bound) {
    draws_ = base::mix64(draws_ + 1);
    return draws_ % bound;
  }

  void finish(size_t which) {
    Pending call = std::move(pending_[which]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(which));
    call.work.wait();
    if (!at::equal(call.got, call.wanted)) throw std::runtime_error(call.what + ": wrong values");
  }

  /// What rank `rank` brings: whole numbers below 16, so that sums of 8 are exact in every type.
  at::Tensor values(int rank, int64_t count, at::ScalarType type) const {
    const auto start = static_cast<int64_t>(draws_ % 16) + rank * 5;
    return at::remainder(at::arange(start, start + 3 * count, 3, at::kLong), 16).to(type);
  }

  void start(ProcessGroup& group) {
    const std::vector<at::ScalarType> types = {at::kFloat, at::kLong, at::kBFloat16, at::kByte};
    const at::ScalarType type = types[next(types.size())];
    const std::vector<uint64_t> most = {2, 40, 1000, 9000};
    const auto count = static_cast<int64_t>(next(most[next(most.size())]));
    const int n = group.size();
    const int me = group.rank();
    const uint64_t operation = next(5);
    const int root = static_cast<int>(next(static_cast<uint64_t>(n)));
    const bool in_heap = next(2) == 0;
    std::vector<at::Tensor> of_rank;
    for (int r = 0; r < n; ++r) of_rank.push_back(values(r, count, type));
    const auto mine = [&](const at::Tensor& x) {
      if (!in_heap) return x.clone();
      at::Tensor y = group.allocate(x.sizes(), type);
      y.copy_(x);
      return y;
    };
    at::Tensor sum = at::zeros({count}, at::kLong);
    for (const at::Tensor& x : of_rank) sum += x.to(at::kLong);
    sum = sum.to(type);
    const std::string what =
        base::str("call ", done_, ", number ", operation, " on ", group.name());

    if (operation == 0) {
      at::Tensor x = mine(of_rank[me]);
      pending_.push_back({group.all_reduce(x), x, sum, what});
    } else if (operation == 1) {
      at::Tensor x = me == root ? mine(of_rank[root]) : at::zeros({count}, type);
      pending_.push_back({group.broadcast(x, root), x, of_rank[root], what});
    } else if (operation == 2) {
      at::Tensor out = at::zeros({count * n}, type);
      pending_.push_back({group.all_gather(mine(of_rank[me]), out), out, at::cat(of_rank), what});
    } else if (operation == 3) {
      const int64_t slice = count / n;
      at::Tensor out = at::zeros({slice}, type);
      pending_.push_back({group.reduce_scatter(mine(of_rank[me].narrow(0, 0, slice * n)), out), out,
                          sum.narrow(0, me * slice, slice), what});
    } else {
      const int from = (me + n - 1) % n;
      at::Tensor in = at::zeros({count}, type);
      Work sent = group.send(mine(of_rank[me]), (me + 1) % n, root);
      pending_.push_back({group.recv(in, from, root), in, of_rank[from], what});
      pending_.push_back({sent, sum, sum, what});
    }
  }

  ProcessGroup world_;
  uint64_t seed_;
  std::vector<std::shared_ptr<ProcessGroup>> made_;
  std::vector<ProcessGroup*> groups_;  // null: this rank is not in it
  std::deque<Pending> pending_;
  int64_t done_ = 0;
  uint64_t draws_ = 0;
  uint64_t own_draws_ = 0;
};

}  // namespace lockstep::test
