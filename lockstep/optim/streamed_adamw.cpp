#include "lockstep/optim/streamed_adamw.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/detail/adamw_step.h"

namespace lockstep::optim {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kPageFloats = files::BlockFile::kAlignment / kFloat;

int64_t moment_pages(int64_t count) { return files::whole_pages(count * kFloat); }

/// Longer by elements that follow the last ones, here and in the file; else by a run of their own.
template <class Run>
void append(std::vector<Run>& runs, int64_t offset, int64_t at, int64_t count) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.offset + last.count * kFloat == offset && last.at + last.count == at) {
      last.count += count;
      return;
    }
  }
  runs.push_back({offset, at, count});
}

void check(const StreamOptions& stream, int64_t moments_at) {
  if (stream.block_elements <= 0 || stream.block_elements % kPageFloats != 0) {
    throw UsageError(base::str("StreamedAdamW: block_elements is ", stream.block_elements,
                               ", but must be a multiple of ", kPageFloats, " above 0."));
  }
  if (stream.blocks < 3) {
    throw UsageError(base::str("StreamedAdamW: blocks is ", stream.blocks,
                               ", but must be 3 or more: one is read while one is computed on and "
                               "one is written."));
  }
  if (moments_at < 0 || moments_at % files::BlockFile::kAlignment != 0) {
    throw UsageError(base::str("StreamedAdamW: moments_at is ", moments_at,
                               ", but must be a multiple of ", files::BlockFile::kAlignment, "."));
  }
}

}  // namespace

int64_t StreamedAdamW::moment_bytes(int64_t elements, const StreamOptions& stream) {
  check(stream, 0);
  const int64_t full = elements / stream.block_elements;
  const int64_t rest = elements % stream.block_elements;
  return 2 * (full * stream.block_elements * kFloat + moment_pages(rest));
}

StreamedAdamW::StreamedAdamW(files::BlockFile& file, int64_t moments_at,
                             const AdamWOptions& options, std::vector<StreamedSpan> spans,
                             const StreamOptions& stream)
    : file_(file), options_(options), spans_(std::move(spans)), stream_(stream) {
  detail::check_options(options_);
  check(stream_, moments_at);
  cut_into_blocks(moments_at);
  take_memory();
}

StreamedAdamW::~StreamedAdamW() { file_.settle(); }

void StreamedAdamW::cut_into_blocks(int64_t moments_at) {
  for (const StreamedSpan& span : spans_) {
    LOCKSTEP_ASSERT(span.count >= 0, "a span has a length");
    for (int64_t lo = 0; lo < span.count;) {
      if (blocks_.empty() || blocks_.back().count == stream_.block_elements) {
        blocks_.emplace_back().moments_at = moments_at;
        moments_at += 2 * stream_.block_elements * kFloat;
      }
      Block& block = blocks_.back();
      const int64_t count = std::min(span.count - lo, stream_.block_elements - block.count);
      block.parts.push_back({&span, lo, block.count, count});
      if (span.master == nullptr) {
        append(block.masters, span.master_at + lo * kFloat, block.count, count);
      }
      if (span.gradient == nullptr) {
        append(block.gradients, span.gradient_at + lo * kFloat, block.count, count);
      }
      block.count += count;
      lo += count;
    }
  }
}

void StreamedAdamW::take_memory() {
  const bool masters = std::any_of(blocks_.begin(), blocks_.end(),
                                   [](const Block& block) { return !block.masters.empty(); });
  const bool gradients = std::any_of(blocks_.begin(), blocks_.end(),
                                     [](const Block& block) { return !block.gradients.empty(); });
  const int64_t bytes = stream_.block_elements * kFloat;
  seats_.resize(static_cast<size_t>(stream_.blocks));
  for (Seat& seat : seats_) {
    seat.moments = files::AlignedBuffer(2 * bytes);
    if (masters) seat.masters = files::AlignedBuffer(bytes);
    if (gradients) seat.gradients = files::AlignedBuffer(bytes);
  }
}

void StreamedAdamW::step(double lr, double grad_scale) {
  const detail::AdamWStep step(options_, steps_taken_ + 1, lr, grad_scale);
  ++steps_taken_;
  // One seat is computed on. Of the others half are read ahead, and the larger half is written: a
  // read that is late only delays, but a seat that is still written holds up the read ahead of it.
  const size_t ahead = (seats_.size() - 1) / 2;
  for (size_t block = 0; block < std::min(ahead, blocks_.size()); ++block) fetch(block);
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (block + ahead < blocks_.size()) fetch(block + ahead);
    Seat& seat = seat_of(block);
    wait_for(seat.reads);
    float* const first = seat.moments.floats();
    float* const second = first + moment_pages(blocks_[block].count) / kFloat;
    for (const Part& part : blocks_[block].parts) {
      const StreamedSpan& span = *part.span;
      float* const master =
          span.master != nullptr ? span.master + part.lo : seat.masters.floats() + part.at;
      const float* const gradient =
          span.gradient != nullptr ? span.gradient + part.lo : seat.gradients.floats() + part.at;
      kernels::adamw(master, first + part.at, second + part.at, gradient, part.count,
                     step.scalars(span.decay, span.lr_factor));
    }
    store(block);
  }
}

void StreamedAdamW::fetch(size_t index) {
  const Block& block = blocks_[index];
  Seat& seat = seat_of(index);
  wait_for(seat.writes);  // of the block that sat there
  const int64_t bytes = 2 * moment_pages(block.count);
  if (steps_taken_ == 1) {
    std::memset(seat.moments.data(), 0, static_cast<size_t>(bytes));
  } else {
    seat.reads.push_back(file_.read(block.moments_at, seat.moments.data(), bytes));
  }
  for (const Run& run : block.masters) {
    seat.reads.push_back(
        file_.read(run.offset, seat.masters.floats() + run.at, run.count * kFloat));
  }
  for (const Run& run : block.gradients) {
    seat.reads.push_back(
        file_.read(run.offset, seat.gradients.floats() + run.at, run.count * kFloat));
  }
}

void StreamedAdamW::store(size_t index) {
  const Block& block = blocks_[index];
  Seat& seat = seat_of(index);
  seat.writes.push_back(
      file_.write(block.moments_at, seat.moments.data(), 2 * moment_pages(block.count)));
  for (const Run& run : block.masters) {
    seat.writes.push_back(
        file_.write(run.offset, seat.masters.floats() + run.at, run.count * kFloat));
  }
}

void StreamedAdamW::wait_for(std::vector<files::BlockFile::Ticket>& tickets) {
  for (const files::BlockFile::Ticket ticket : tickets) file_.wait(ticket);
  tickets.clear();
}

int64_t StreamedAdamW::state_bytes() const {
  int64_t bytes = 0;
  for (const Seat& seat : seats_) {
    bytes += seat.moments.bytes() + seat.masters.bytes() + seat.gradients.bytes();
  }
  return bytes;
}

void StreamedAdamW::for_each_run(
    int kind, size_t span, int64_t lo, int64_t hi,
    const std::function<void(int64_t offset, int64_t at, int64_t count)>& see) const {
  for (const Block& block : blocks_) {
    const int64_t moment = block.moments_at + kind * moment_pages(block.count);
    for (const Part& part : block.parts) {
      if (part.span != &spans_[span]) continue;
      const int64_t first = std::max(lo, part.lo);
      const int64_t count = std::min(hi, part.lo + part.count) - first;
      if (count > 0) see(moment + (part.at + first - part.lo) * kFloat, first, count);
    }
  }
}

void StreamedAdamW::read_moment(int kind, size_t span, int64_t lo, int64_t hi, float* into) {
  std::vector<files::BlockFile::Ticket> reads;
  for_each_run(kind, span, lo, hi, [&](int64_t offset, int64_t at, int64_t count) {
    reads.push_back(file_.read(offset, into + (at - lo), count * kFloat));
  });
  wait_for(reads);
}

void StreamedAdamW::write_moment(int kind, size_t span, int64_t lo, int64_t hi, const float* from) {
  std::vector<files::BlockFile::Ticket> writes;
  for_each_run(kind, span, lo, hi, [&](int64_t offset, int64_t at, int64_t count) {
    writes.push_back(file_.write(offset, from + (at - lo), count * kFloat));
  });
  wait_for(writes);
}

int64_t StreamedAdamW::offset_of_master(int64_t span, int64_t lo, int64_t hi) const {
  LOCKSTEP_ASSERT(span >= 0 && span < std::ssize(spans_), "the span is one of these");
  const StreamedSpan& whole = spans_[static_cast<size_t>(span)];
  LOCKSTEP_ASSERT(whole.master == nullptr, "the master is in the file");
  LOCKSTEP_ASSERT(0 <= lo && lo <= hi && hi <= whole.count, "the range is inside the span");
  return whole.master_at + lo * kFloat;
}

files::BlockFile::Ticket StreamedAdamW::read_master(int64_t span, int64_t lo, int64_t hi,
                                                    float* into) {
  return file_.read(offset_of_master(span, lo, hi), into, (hi - lo) * kFloat);
}

files::BlockFile::Ticket StreamedAdamW::write_master(int64_t span, int64_t lo, int64_t hi,
                                                     const float* from) {
  return file_.write(offset_of_master(span, lo, hi), from, (hi - lo) * kFloat);
}

}  // namespace lockstep::optim
