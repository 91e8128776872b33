#include "lockstep/train/distributed_sampler.h"

#include <torch/serialize/archive.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

struct DistributedSampler::Place {
  input::RankSamples samples;
  int64_t epoch = 0;
  int64_t read = 0;       // of this rank, in this pass
  bool untouched = true;  // the next reset stays in this epoch
};

DistributedSampler::DistributedSampler(int64_t size, const ProcessGroup& group,
                                       const DistributedSamplerOptions& options)
    : DistributedSampler(size, group.rank(), group.size(), options) {}

DistributedSampler::DistributedSampler(int64_t size, int rank, int ranks,
                                       const DistributedSamplerOptions& options)
    : place_(std::make_shared<Place>()) {
  if (size < 1) throw UsageError(base::str("a dataset of ", size, " samples has none to share."));
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw UsageError(base::str("rank ", rank, " is not among ", ranks, " ranks."));
  }
  place_->samples = {.order = {.size = size, .seed = options.seed, .shuffle = options.shuffle},
                     .rank = rank,
                     .ranks = ranks,
                     .tail = options.tail,
                     .first = 0};
}

void DistributedSampler::reset(torch::optional<size_t> new_size) {
  if (new_size) place_->samples.order.size = static_cast<int64_t>(*new_size);
  if (place_->untouched) {
    place_->untouched = false;
    return;
  }
  ++place_->epoch;
  place_->read = 0;
  place_->samples.first = 0;
}

torch::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  Place& place = *place_;
  place.untouched = false;
  const int64_t left = place.samples.count() - place.read;
  const auto count = std::min<int64_t>(left, static_cast<int64_t>(batch_size));
  if (count <= 0) return torch::nullopt;
  std::vector<size_t> batch;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = place.samples.position(place.read++);
    batch.push_back(static_cast<size_t>(place.samples.order.at(place.epoch, position)));
  }
  return batch;
}

int64_t DistributedSampler::epoch() const { return place_->epoch; }

void DistributedSampler::set_epoch(int64_t epoch) { restore({.epoch = epoch, .position = 0}); }

int64_t DistributedSampler::size() const { return place_->samples.count(); }

SampleCursor DistributedSampler::cursor_after(int64_t samples) const {
  const input::RankSamples& mine = place_->samples;
  const int64_t position = mine.first + samples * mine.ranks;
  return {.epoch = place_->epoch, .position = std::min(position, mine.order.size)};
}

void DistributedSampler::restore(const SampleCursor& cursor) {
  const int64_t size = place_->samples.order.size;
  if (cursor.epoch < 0 || cursor.position < 0 || cursor.position > size) {
    throw UsageError(base::str("no place in a dataset of ", size, " samples: epoch ", cursor.epoch,
                               ", position ", cursor.position, "."));
  }
  place_->epoch = cursor.epoch;
  place_->samples.first = cursor.position;
  place_->read = 0;
  place_->untouched = true;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const SampleCursor cursor = cursor_after(place_->read);
  archive.write("epoch", torch::tensor(cursor.epoch, torch::kLong), /*is_buffer=*/true);
  archive.write("position", torch::tensor(cursor.position, torch::kLong), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch = torch::empty({1}, torch::kLong);
  torch::Tensor position = torch::empty({1}, torch::kLong);
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("position", position, /*is_buffer=*/true);
  restore({.epoch = epoch.item<int64_t>(), .position = position.item<int64_t>()});
}

}  // namespace lockstep
