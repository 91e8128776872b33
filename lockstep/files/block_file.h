/// One temporary file for what a rank keeps on disk, read and written while the rank computes.
///
/// It has a fixed size, reserved at the start, and no name: a full disk is found before there is
/// anything to lose, and whatever ends the process leaves nothing behind. It reads as zeros at
/// first. Transfers go past the page cache (O_DIRECT) where the file system lets them, by io_uring
/// where that is permitted and by two threads elsewhere.
///
/// Moves   each byte asked for once, when offset, size and memory are multiples of 4096
/// Holds   nothing then; else up to 8 bounce buffers of 1 MiB   test: BlockFileTest.HoldsFewBounces
/// Order   a transfer waits for those under way that share a page with it, unless both read
///
/// Other offsets and sizes are right too, but slower: they are copied through bounce buffers, and
/// a write that covers a page in part reads that page first, at once.
///
/// One thread at a time uses a file; transfers go on without it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/files/aligned_buffer.h"
#include "lockstep/files/detail/block_io.h"
#include "lockstep/files/detail/temporary_file.h"

namespace lockstep::files {

/// How a transfer is to go wrong, for tests.
struct BlockFileFault {
  std::chrono::microseconds delay{0};  // before it starts
  int error = 0;                       // an errno in place of the transfer
  int64_t at_most = 0;                 // bytes of it that are done at once; 0: all
};

struct BlockFileOptions {
  enum class Engine { automatic, io_uring, threads };
  /// automatic: io_uring where the system permits it.
  Engine engine = Engine::automatic;
  /// Past the page cache, where the file system lets us.
  bool direct = true;
  /// Tests plant faults here; called as a transfer, or what is left of it, is started.
  std::function<BlockFileFault(bool write, int64_t offset, int64_t bytes)> at_start = {};
};

class BlockFile {
 public:
  static constexpr int64_t kAlignment = AlignedBuffer::kAlignment;

  /// A transfer that was started.
  struct Ticket {
    int64_t number = 0;  // 0: of nothing
  };

  /// Throws EnvironmentError naming the folder, the bytes wanted and what is free: no such folder,
  /// no room. UsageError: io_uring was asked for and is not permitted.
  BlockFile(const std::string& folder, int64_t bytes, const BlockFileOptions& options = {});
  /// Waits for what is under way.
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  /// Start a transfer; its memory must stay, and `data` as it is, until `wait` or `settle`. Both
  /// may first wait for others (see Order). Throw UsageError: beyond the end of the file;
  /// StateError: an earlier transfer has failed.
  [[nodiscard]] Ticket write(int64_t offset, const void* data, int64_t bytes);
  [[nodiscard]] Ticket read(int64_t offset, void* into, int64_t bytes);

  /// Until the transfer is done; at once if it was waited for before. Throws StateError naming
  /// file, offset, bytes and the system's reason if it, or one before, has failed. What the file
  /// holds is not to be used then, and every later call throws too.
  void wait(Ticket ticket);
  /// Until nothing is under way, failed or not: memory may be freed then.
  void settle() noexcept;

  int64_t bytes() const { return bytes_; }
  int64_t bytes_written() const { return bytes_written_; }
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bounce_bytes() const;
  /// "8.0 GiB in /scratch, direct, by io_uring".
  std::string description() const;
  /// For measurements of the device beside it.
  int descriptor() const { return file_.descriptor(); }

 private:
  // What the caller asked for: done when all of its pieces are.
  struct Transfer {
    int64_t number = 0;
    bool write = false;
    int64_t first = 0;  // the pages it touches
    int64_t end = 0;
    int pieces = 0;
  };
  // What the engine gets: whole pages where the file is direct.
  struct Piece {
    Transfer* transfer = nullptr;  // null: an edge, which its caller waits for
    detail::BlockIo::Request request;
    AlignedBuffer bounce;  // if used, `wanted` bytes of it from `skip` on go to `into`
    char* into = nullptr;
    int64_t skip = 0;
    int64_t wanted = 0;
    std::chrono::steady_clock::time_point not_before;
    BlockFileFault fault;
    bool done = false;
  };

  Ticket start(bool write, int64_t offset, char* data, int64_t bytes);
  void make_pieces(Transfer& transfer, int64_t offset, char* data, int64_t bytes);
  void let_go(Transfer& transfer);
  void bounced(Transfer& transfer, int64_t offset, char* data, int64_t bytes);
  void read_page(int64_t offset, char* into);
  Piece& add(Transfer* transfer, bool write, int64_t offset, char* data, int64_t bytes);
  void launch(Piece& piece);
  void hand_over(Piece& piece);
  void advance();
  void finish(Piece& piece, int64_t result);
  bool under_way(int64_t number) const;
  AlignedBuffer take_bounce();
  void throw_if_failed() const;

  std::string folder_;
  int64_t bytes_;
  std::function<BlockFileFault(bool, int64_t, int64_t)> at_start_;
  detail::TemporaryFile file_;
  std::unique_ptr<detail::BlockIo> io_;
  std::list<Transfer> transfers_;     // under way, oldest first
  std::list<Piece> pieces_;           // of these
  int in_engine_ = 0;                 // pieces that the engine has
  std::vector<AlignedBuffer> spare_;  // bounce buffers that are free
  int bounces_ = 0;                   // all of them
  int64_t last_number_ = 0;
  int64_t bytes_written_ = 0;
  int64_t bytes_read_ = 0;
  std::string failure_;  // of the first that failed
};

}  // namespace lockstep::files
