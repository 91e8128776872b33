/// How replicas of a module agree on their gradients: the choices of DistributedDataParallel.
#pragma once

#include <cstdint>

#include "lockstep/base/units.h"

namespace lockstep {

enum class Reduction { mean, sum };

/// A trained parameter that took no part in any loss since the last synchronized backward.
enum class UnusedParameters {
  refuse,  // every rank throws a UsageError that names rank and parameters
  zero,    // its gradient counts as zero
};

enum class BufferSync {
  every_step,  // all ranks take rank 0's buffers after each synchronized backward
  at_start,    // only once; each rank's running statistics are its own afterwards
};

struct DdpOptions {
  Reduction reduction = Reduction::mean;
  UnusedParameters unused = UnusedParameters::refuse;
  BufferSync buffers = BufferSync::every_step;
  /// The promise that every backward uses the same parameters equally often, which saves the
  /// agreement of each step. A backward that breaks it throws.
  bool static_graph = false;
  /// Gradients up to this size share one all-reduce. Larger: fewer latencies, less overlap.
  int64_t bucket_bytes = 25 * MiB;
  /// The first bucket is small, so communication starts while backward is still young.
  int64_t first_bucket_bytes = 1 * MiB;
};

/// What gradients are divided by (with Reduction::mean) once some ranks are out of data.
enum class JoinDivisor {
  world,  // the number of ranks at the start: each sample weighs the same from first to last step
  live,   // the ranks that still have data: each step is a mean of what was computed in it
};

}  // namespace lockstep
