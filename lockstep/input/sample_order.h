/// In which order the samples of a dataset come, epoch after epoch, and whose each is: a function
/// of seed, epoch and position only, so any rank can answer for any other and resuming is
/// arithmetic.
///
/// Position p of an epoch belongs to rank (p - first) mod D, where `first` is the position at which
/// these D ranks began: 0, or where a run with another number of ranks left off.
#pragma once

#include <cstdint>

namespace lockstep::input {

/// How far a dataset has been read: all that a run has to keep to go on, on any number of ranks.
struct SampleCursor {
  int64_t epoch = 0;
  int64_t position = 0;  // samples of the epoch that were read, by all ranks together
  bool operator==(const SampleCursor&) const = default;
};

struct SampleOrder {
  int64_t size = 0;  // samples of the dataset
  uint64_t seed = 0;
  bool shuffle = true;

  /// The sample at a position of an epoch. Positions from `size` on repeat the epoch's first ones:
  /// what pads the last round of ranks.
  int64_t at(int64_t epoch, int64_t position) const;
};

/// What happens to samples left over when an epoch does not divide by the ranks.
enum class Tail {
  pad,   // the epoch's first samples are repeated: every sample is read, ranks read equally many
  drop,  // they are not read: no sample is read twice, ranks read equally many
  keep,  // they are read: ranks may differ by one (DistributedDataParallel::join)
};

/// One rank's way through a SampleOrder.
struct RankSamples {
  SampleOrder order;
  int rank = 0;
  int ranks = 1;
  Tail tail = Tail::pad;
  int64_t first = 0;  // position of the epoch at which these ranks began

  /// How many samples of the epoch this rank reads from `first` on.
  int64_t count() const;
  /// Position of its `index`-th sample.
  int64_t position(int64_t index) const { return first + index * ranks + rank; }
  /// It fills up the last round: another rank, or this one, reads it too.
  bool is_repeat(int64_t index) const { return position(index) >= order.size; }
};

}  // namespace lockstep::input
