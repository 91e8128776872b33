/// A size of an operation, measured on every rank together with the others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/cli/bench.h"
#include "lockstep/net/group.h"

namespace lockstep::cli {

struct Timing {
  bool available = false;  // the operation has this form
  double mean_s = 0;
  double min_s = 0;
  double median_s = 0;
  int64_t wrong = 0;
  int64_t counted_bytes = 0;  // of a call, by all ranks together
  int64_t across_bytes = 0;   // of them, those that came from another host
};

/// Of a call, by all ranks together: what their ledgers should count.
int64_t expected_bytes(const BenchOptions& options, plan::Algorithm algorithm, int64_t count);
/// Of them, those that leave a host.
int64_t expected_across(const BenchOptions& options, plan::Algorithm algorithm, int64_t count);

/// A tensor of floats, in the heap or not.
class BenchTensor {
 public:
  BenchTensor(net::Group& group, int64_t count, bool in_heap);
  float* data() const { return static_cast<float*>(block_.get()); }
  int64_t count() const { return count_; }

 private:
  int64_t count_;
  std::shared_ptr<void> block_;
};

/// One size of one operation.
class Measurement {
 public:
  Measurement(net::Group& group, const BenchOptions& options, plan::Algorithm algorithm,
              int64_t bytes);

  plan::Algorithm algorithm() const { return algorithm_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return a_.count() * int64_t{sizeof(float)}; }

  /// The operation with its result in the place of its input, or not. All ranks call it together.
  Timing run(bool in_place);

 private:
  int64_t own_start() const { return group_.rank() * count_; }

  net::LedgerEntry entry() const { return group_.ledger()[options_.operation]; }
  void write_input(bool in_place);
  void call(bool in_place);
  int64_t count_wrong(bool in_place) const;

  net::Group& group_;
  const BenchOptions& options_;
  const plan::Algorithm algorithm_;
  const int n_;
  const int64_t count_;  // elements, as nccl-tests counts them
  const std::vector<int64_t> counts_;
  BenchTensor a_;
  BenchTensor b_;
  int64_t turn_ = 0;
};

}  // namespace lockstep::cli
