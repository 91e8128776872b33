#include "lockstep/cli/bench_measurement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {

using net::DType;
using net::Operation;

namespace {

/// What rank `rank` holds in element `i` before call `turn`: small whole numbers, so that sums are
/// exact, and others in each call, so that a call which does nothing is found out.
float value(int rank, int64_t turn, int64_t i) {
  return static_cast<float>((3 * i + 5 * rank + turn) & 127);
}

void fill(float* data, int64_t count, int rank, int64_t turn, int64_t first = 0) {
  for (int64_t i = 0; i < count; ++i) data[i] = value(rank, turn, first + i);
}

}  // namespace

int64_t expected_bytes(const BenchOptions& options, plan::Algorithm algorithm, int64_t count) {
  constexpr int64_t kWidth = sizeof(float);
  const bool one_pass = algorithm == plan::Algorithm::direct && options.engines[0] != "mpi" &&
                        options.topology.empty();
  const plan::CollectivePlan plan = plan_of(options, algorithm, count);
  int64_t bytes = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    // An all-reduce in one pass is shorter where its terms fit into their announcements.
    bytes += one_pass && options.operation == Operation::all_reduce
                 ? plan::all_reduce_bytes(plan.terms, rank, count, kWidth)
                 : plan::bytes_sent(plan, rank, kWidth);
  }
  return bytes;
}

int64_t expected_across(const BenchOptions& options, plan::Algorithm algorithm, int64_t count) {
  std::vector<int> host_of_rank(static_cast<size_t>(options.ranks));
  for (size_t host = 0; host < options.hosts.size(); ++host) {
    for (const int rank : options.hosts[host]) {
      host_of_rank[static_cast<size_t>(rank)] = static_cast<int>(host);
    }
  }
  const std::vector<int64_t> by_host =
      plan::bytes_over_uplink(plan_of(options, algorithm, count), host_of_rank, sizeof(float));
  return std::accumulate(by_host.begin(), by_host.end(), int64_t{0});
}

BenchTensor::BenchTensor(net::Group& group, int64_t count, bool in_heap) : count_(count) {
  const int64_t bytes = std::max<int64_t>(count, 1) * int64_t{sizeof(float)};
  if (in_heap) {
    block_ = group.allocate(bytes).memory;
  } else {
    const int64_t rounded = (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
    block_.reset(std::aligned_alloc(2 * MiB, static_cast<size_t>(rounded)), std::free);
    if (!block_) throw OutOfMemory(base::str("no ", base::bytes_text(bytes), " for a tensor"));
  }
}

Measurement::Measurement(net::Group& group, const BenchOptions& options, plan::Algorithm algorithm,
                         int64_t bytes)
    : group_(group),
      options_(options),
      algorithm_(algorithm),
      n_(group.size()),
      count_(count_of(options, bytes)),
      counts_(static_cast<size_t>(n_), count_),
      a_(group, count_ * (has_a_part_for_each(options.operation) ? n_ : 1), options.in_heap),
      b_(group, a_.count(), options.in_heap) {}

Timing Measurement::run(bool in_place) {
  Timing timing;
  timing.available = options_.operation == Operation::broadcast    ? in_place
                     : options_.operation == Operation::all_to_all ? !in_place
                                                                   : true;
  if (!timing.available) return timing;
  std::vector<double> seconds;
  std::array<int64_t, 2> moved{};  // in all, and across
  for (int i = -options_.warmup; i < options_.iterations; ++i) {
    ++turn_;
    write_input(in_place);
    group_.barrier();
    group_.restart_modelled_clock();
    const net::LedgerEntry before = entry();
    const auto start = std::chrono::steady_clock::now();
    call(in_place);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    moved[0] += entry().bytes - before.bytes;
    moved[1] += entry().across - before.across;
    if (i < 0) continue;
    seconds.push_back(options_.topology.empty() ? taken.count() : group_.modelled_seconds());
  }
  group_.all_reduce(moved.data(), std::ssize(moved), DType::i64);
  timing.counted_bytes = moved[0] / (options_.warmup + options_.iterations);
  timing.across_bytes = moved[1] / (options_.warmup + options_.iterations);
  group_.all_reduce(seconds.data(), static_cast<int64_t>(seconds.size()), DType::f64,
                    net::ReduceOp::max);
  timing.mean_s =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  std::sort(seconds.begin(), seconds.end());
  timing.min_s = seconds.front();
  timing.median_s = seconds[seconds.size() / 2];
  if (options_.check) {
    timing.wrong = count_wrong(in_place);
    group_.all_reduce(&timing.wrong, 1, DType::i64);
  }
  return timing;
}

void Measurement::write_input(bool in_place) {
  if (options_.operation == Operation::all_gather) {
    fill(in_place ? b_.data() + own_start() : a_.data(), count_, group_.rank(), turn_);
  } else {
    fill(a_.data(), a_.count(), group_.rank(), turn_);
  }
}

void Measurement::call(bool in_place) {
  float* const a = a_.data();
  float* const b = b_.data();
  switch (options_.operation) {
    case Operation::all_reduce:
      if (in_place) {
        group_.all_reduce(a, count_, DType::f32);
      } else {
        const net::Term term{{group_.rank(), group_.rank() + 1}, a};
        group_.all_reduce_terms(std::span(&term, 1), n_, b, count_, DType::f32);
      }
      break;
    case Operation::reduce_scatter:
      group_.reduce_scatter(a, in_place ? a + own_start() : b, counts_, DType::f32);
      break;
    case Operation::all_gather:
      group_.all_gather(in_place ? b + own_start() : a, b, counts_, DType::f32);
      break;
    case Operation::broadcast:
      group_.broadcast(a, count_, DType::f32, kBenchRoot);
      break;
    default:
      group_.all_to_all(a, counts_, b, counts_, DType::f32);
      break;
  }
}

int64_t Measurement::count_wrong(bool in_place) const {
  const float* a = a_.data();
  const float* b = b_.data();
  const auto sum = [&](int64_t i) {
    float total = 0;
    for (int r = 0; r < n_; ++r) total += value(r, turn_, i);
    return total;
  };
  const auto differ = [](const float* data, int64_t count,
                         const std::function<float(int64_t)>& wanted) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) wrong += data[i] != wanted(i) ? 1 : 0;
    return wrong;
  };
  int64_t wrong = 0;
  switch (options_.operation) {
    case Operation::all_reduce:
      return differ(in_place ? a : b, count_, sum);
    case Operation::reduce_scatter:
      return differ(in_place ? a + own_start() : b, count_,
                    [&](int64_t i) { return sum(own_start() + i); });
    case Operation::all_gather:
      for (int r = 0; r < n_; ++r) {
        wrong += differ(b + r * count_, count_, [&](int64_t i) { return value(r, turn_, i); });
      }
      return wrong;
    case Operation::broadcast:
      return differ(a, count_, [&](int64_t i) { return value(kBenchRoot, turn_, i); });
    default:
      for (int r = 0; r < n_; ++r) {
        wrong += differ(b + r * count_, count_,
                        [&](int64_t i) { return value(r, turn_, own_start() + i); });
      }
      return wrong;
  }
}

}  // namespace lockstep::cli
