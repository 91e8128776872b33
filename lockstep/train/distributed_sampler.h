/// A sampler for LibTorch's data loader in which each rank reads its own part of the dataset.
///
///   lockstep::DistributedSampler sampler(*dataset.size(), *world);
///   auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 32);
///   for (int epoch = 0; epoch < 3; ++epoch) for (auto& batch : *loader) ...
///
/// The order of an epoch is the same on all ranks, and another one each epoch: starting the next
/// pass over the loader advances the epoch. No word is exchanged; seed, epoch and position say
/// whose each sample is (input/sample_order.h). Copies share their place, so the one that was kept
/// can be asked where the loader's copy stands.
#pragma once

#include <torch/data/samplers/base.h>

#include <memory>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/input/sample_order.h"

namespace lockstep {

using input::SampleCursor;
using input::Tail;

struct DistributedSamplerOptions {
  bool shuffle = true;
  uint64_t seed = 0;  // the same on all ranks
  Tail tail = Tail::pad;
};

class DistributedSampler final : public torch::data::samplers::Sampler<> {
 public:
  /// `size` samples, shared among the ranks of `group`. Throws UsageError if there are none.
  DistributedSampler(int64_t size, const ProcessGroup& group,
                     const DistributedSamplerOptions& options = {});
  /// The same for a rank of a number of ranks without a group: `rank` of `ranks`.
  DistributedSampler(int64_t size, int rank, int ranks,
                     const DistributedSamplerOptions& options = {});

  /// The next pass: the epoch advances by one, unless nothing was read since the sampler was made,
  /// restored, or told its epoch.
  void reset(torch::optional<size_t> new_size = torch::nullopt) override;
  /// This rank's next samples, up to `batch_size`; nothing at the end of the epoch.
  torch::optional<std::vector<size_t>> next(size_t batch_size) override;

  int64_t epoch() const;
  /// The next pass reads this epoch, from its start.
  void set_epoch(int64_t epoch);

  /// Samples that this rank reads in the epoch at hand.
  int64_t size() const;

  /// Where all ranks stand once each has read `samples` of its own in this pass. A loader with
  /// worker threads asks ahead of what it has delivered: count what was trained on.
  SampleCursor cursor_after(int64_t samples) const;
  /// The next pass goes on from there, whatever the number of ranks was: what was read in that
  /// epoch is not read again, what was not is read once.
  void restore(const SampleCursor& cursor);

  /// The cursor after what has been asked for, to LibTorch's archives.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Place;
  std::shared_ptr<Place> place_;
};

}  // namespace lockstep
