/// AdamW whose moments, and if wanted masters and gradients, are in a file: each step is one pass
/// over them, block by block, the bits those of AdamW.
///
///   file  ->  read b+2, b+1 | kernel on b | write b-1, b-2, b-3  ->  file        (6 blocks)
///
/// Moves   a step 16 bytes a parameter (both moments, read and written), and 8 more for a master
///         and 4 for a gradient in the file              test: StreamedAdamW.MovesItsBytesOnce
/// Holds   `blocks` blocks of `block_elements`, of 8 bytes an element, and 4 more each where
///         masters or gradients are in the file          test: StreamedAdamW.HoldsItsBlocksOnly
/// Order   element by element, as in memory              test: StreamedAdamW.HasTheBitsOfAdamW
/// Source  Rajbhandari et al. 2021, "ZeRO-Infinity", SC;  docs/concepts/offload.md
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/files/aligned_buffer.h"
#include "lockstep/files/block_file.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::optim {

/// A run of elements with one decay rule. Without a pointer they are in the file, at an offset: its
/// transfers are the cheapest where the spans' masters follow each other without gaps, in the
/// order of the spans and from a multiple of 4096 on (gradients alike).
struct StreamedSpan {
  float* master = nullptr;
  int64_t master_at = 0;
  const float* gradient = nullptr;
  int64_t gradient_at = 0;
  int64_t count = 0;
  bool decay = false;
  double lr_factor = 1;
};

struct StreamOptions {
  /// A larger block has fewer, longer transfers, and takes more memory. A multiple of 1024.
  int64_t block_elements = int64_t{1} << 19;
  /// One is computed on, the others are read ahead and written behind. At least 3.
  int blocks = 6;
};

class StreamedAdamW final : public Updater {
 public:
  /// What the moments of `elements` take in the file.
  static int64_t moment_bytes(int64_t elements, const StreamOptions& stream = {});

  /// The moments of all spans lie from `moments_at` on, a multiple of 4096. The file is used by the
  /// calling thread alone, and outlives this. Throws UsageError naming field and value.
  StreamedAdamW(files::BlockFile& file, int64_t moments_at, const AdamWOptions& options,
                std::vector<StreamedSpan> spans, const StreamOptions& stream = {});
  /// Waits for its transfers.
  ~StreamedAdamW() override;
  StreamedAdamW(const StreamedAdamW&) = delete;
  StreamedAdamW& operator=(const StreamedAdamW&) = delete;

  /// The last blocks may still be on their way to the file when it returns: that they could not be
  /// written is then an error of the next call. Throws StateError: a transfer failed. Part of the
  /// parameters have taken the step then, and the file refuses every later call.
  void step(double lr, double grad_scale) override;

  /// The blocks.
  int64_t state_bytes() const override;

  void read_moment(int kind, size_t span, int64_t lo, int64_t hi, float* into) override;
  void write_moment(int kind, size_t span, int64_t lo, int64_t hi, const float* from) override;

  /// Elements [lo, hi) of a span whose master is in the file, as of the last step. Memory must stay
  /// until the ticket was waited for.
  [[nodiscard]] files::BlockFile::Ticket read_master(int64_t span, int64_t lo, int64_t hi,
                                                     float* into);
  [[nodiscard]] files::BlockFile::Ticket write_master(int64_t span, int64_t lo, int64_t hi,
                                                      const float* from);

 private:
  // Part of a span in a block.
  struct Part {
    const StreamedSpan* span = nullptr;
    int64_t lo = 0;  // in the span
    int64_t at = 0;  // in the block
    int64_t count = 0;
  };
  // Elements of a block that follow each other in the file, too.
  struct Run {
    int64_t offset = 0;
    int64_t at = 0;
    int64_t count = 0;
  };
  struct Block {
    int64_t moments_at = 0;
    int64_t count = 0;
    std::vector<Part> parts;
    std::vector<Run> masters;
    std::vector<Run> gradients;
  };
  // The memory of a block while it is here.
  struct Seat {
    files::AlignedBuffer moments;  // the first, then from whole pages on the second
    files::AlignedBuffer masters;
    files::AlignedBuffer gradients;
    std::vector<files::BlockFile::Ticket> reads;
    std::vector<files::BlockFile::Ticket> writes;
  };

  void cut_into_blocks(int64_t moments_at);
  void take_memory();
  Seat& seat_of(size_t block) { return seats_[block % seats_.size()]; }
  void fetch(size_t block);
  void store(size_t block);
  void wait_for(std::vector<files::BlockFile::Ticket>& tickets);
  /// `see` gets where in the file, from which element on and how many, elements of a moment lie.
  void for_each_run(
      int kind, size_t span, int64_t lo, int64_t hi,
      const std::function<void(int64_t offset, int64_t at, int64_t count)>& see) const;
  int64_t offset_of_master(int64_t span, int64_t lo, int64_t hi) const;

  files::BlockFile& file_;
  AdamWOptions options_;
  std::vector<StreamedSpan> spans_;
  StreamOptions stream_;
  std::vector<Block> blocks_;
  std::vector<Seat> seats_;
};

}  // namespace lockstep::optim
