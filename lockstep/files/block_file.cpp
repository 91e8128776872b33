#include "lockstep/files/block_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::files {
namespace {

constexpr int kInFlight = 64;
constexpr int kBounces = 8;
constexpr int64_t kBounceBytes = MiB;
constexpr int64_t kLargestPiece = GiB;  // a call of the system moves less than 2 GiB

int64_t page_of(int64_t offset) { return offset / BlockFile::kAlignment * BlockFile::kAlignment; }

bool whole(int64_t number) { return number % BlockFile::kAlignment == 0; }

bool whole(const void* address) { return whole(reinterpret_cast<intptr_t>(address)); }

}  // namespace

BlockFile::BlockFile(const std::string& folder, int64_t bytes, const BlockFileOptions& options)
    : folder_(folder),
      bytes_(bytes),
      at_start_(options.at_start),
      file_(folder, whole_pages(bytes), options.direct) {
  using Engine = BlockFileOptions::Engine;
  if (options.engine != Engine::threads) io_ = detail::uring_io(file_.descriptor(), kInFlight);
  if (io_ == nullptr && options.engine == Engine::io_uring) {
    throw UsageError("io_uring is not permitted here (containers often forbid it): use threads.");
  }
  if (io_ == nullptr) io_ = detail::thread_io(file_.descriptor());
}

BlockFile::~BlockFile() { settle(); }

BlockFile::Ticket BlockFile::write(int64_t offset, const void* data, int64_t bytes) {
  // Written from only: `start` serves both ways.
  return start(true, offset, const_cast<char*>(static_cast<const char*>(data)), bytes);
}

BlockFile::Ticket BlockFile::read(int64_t offset, void* into, int64_t bytes) {
  return start(false, offset, static_cast<char*>(into), bytes);
}

BlockFile::Ticket BlockFile::start(bool write, int64_t offset, char* data, int64_t bytes) {
  throw_if_failed();
  if (offset < 0 || bytes < 0 || bytes > bytes_ - offset) {
    throw UsageError(base::str("the offload file has ", base::with_commas(bytes_), " bytes: no ",
                               base::with_commas(bytes), " at ", base::with_commas(offset), "."));
  }
  if (bytes == 0) return {};
  const int64_t first = page_of(offset);
  const int64_t end = whole_pages(offset + bytes);
  const auto in_the_way = [&](const Transfer& other) {
    return other.first < end && first < other.end && (write || other.write);
  };
  while (std::any_of(transfers_.begin(), transfers_.end(), in_the_way)) advance();
  throw_if_failed();

  (write ? bytes_written_ : bytes_read_) += bytes;
  Transfer& transfer = transfers_.emplace_back(Transfer{++last_number_, write, first, end, 0});
  ++transfer.pieces;  // held while its pieces are made, or the first to end would end it
  try {
    make_pieces(transfer, offset, data, bytes);
  } catch (...) {  // no memory for a bounce buffer
    let_go(transfer);
    throw;
  }
  const Ticket ticket{transfer.number};
  let_go(transfer);
  return ticket;
}

void BlockFile::let_go(Transfer& transfer) {
  if (--transfer.pieces > 0) return;
  transfers_.remove_if([&](const Transfer& other) { return &other == &transfer; });
}

void BlockFile::make_pieces(Transfer& transfer, int64_t offset, char* data, int64_t bytes) {
  if (!whole(offset) || !whole(bytes) || !whole(data)) {
    bounced(transfer, offset, data, bytes);
    return;
  }
  for (int64_t done = 0; done < bytes; done += kLargestPiece) {
    const int64_t size = std::min(kLargestPiece, bytes - done);
    launch(add(&transfer, transfer.write, offset + done, data + done, size));
  }
}

// Piece by piece through buffers of whole pages.
void BlockFile::bounced(Transfer& transfer, int64_t offset, char* data, int64_t bytes) {
  while (bytes > 0 && failure_.empty()) {
    const int64_t skip = offset - page_of(offset);
    const int64_t wanted = std::min(bytes, kBounceBytes - skip);
    const int64_t size = whole_pages(skip + wanted);
    AlignedBuffer bounce = take_bounce();
    if (transfer.write) {
      const int64_t last = size - kAlignment;
      if (skip > 0) read_page(page_of(offset), bounce.data());
      if (!whole(skip + wanted) && (last > 0 || skip == 0)) {
        read_page(page_of(offset) + last, bounce.data() + last);
      }
      if (!failure_.empty()) {
        spare_.push_back(std::move(bounce));
        return;
      }
      std::memcpy(bounce.data() + skip, data, static_cast<size_t>(wanted));
    }
    Piece& piece = add(&transfer, transfer.write, page_of(offset), bounce.data(), size);
    piece.bounce = std::move(bounce);
    piece.into = data;
    piece.skip = skip;
    piece.wanted = wanted;
    launch(piece);
    offset += wanted;
    data += wanted;
    bytes -= wanted;
  }
}

// A page that a write covers in part. Nothing that is under way writes it: see `start`.
void BlockFile::read_page(int64_t offset, char* into) {
  Piece& piece = add(nullptr, false, offset, into, kAlignment);
  launch(piece);
  while (!piece.done) advance();
  pieces_.remove_if([&](const Piece& other) { return &other == &piece; });
}

BlockFile::Piece& BlockFile::add(Transfer* transfer, bool write, int64_t offset, char* data,
                                 int64_t bytes) {
  Piece& piece = pieces_.emplace_back();
  piece.transfer = transfer;
  piece.request = {write, offset, data, bytes, reinterpret_cast<uintptr_t>(&piece)};
  if (transfer != nullptr) ++transfer->pieces;
  return piece;
}

void BlockFile::launch(Piece& piece) {
  const detail::BlockIo::Request& request = piece.request;
  piece.fault = {};
  if (at_start_) piece.fault = at_start_(request.write, request.offset, request.bytes);
  piece.not_before = {};
  if (piece.fault.delay.count() > 0) {
    piece.not_before = std::chrono::steady_clock::now() + piece.fault.delay;
    return;  // `advance` hands it over
  }
  hand_over(piece);
}

void BlockFile::hand_over(Piece& piece) {
  piece.not_before = {};
  while (in_engine_ == kInFlight) advance();
  detail::BlockIo::Request request = piece.request;
  if (piece.fault.at_most > 0) request.bytes = std::min(request.bytes, piece.fault.at_most);
  if (piece.fault.error != 0) {
    finish(piece, -piece.fault.error);
    return;
  }
  ++in_engine_;
  io_->start(request);
}

// One piece further, or one that was delayed is started.
void BlockFile::advance() {
  using Clock = std::chrono::steady_clock;
  Piece* delayed = nullptr;
  for (Piece& piece : pieces_) {
    if (piece.not_before == Clock::time_point{}) continue;
    if (delayed == nullptr || piece.not_before < delayed->not_before) delayed = &piece;
  }
  if (delayed != nullptr && (in_engine_ == 0 || delayed->not_before <= Clock::now())) {
    std::this_thread::sleep_until(delayed->not_before);
    hand_over(*delayed);
    return;
  }
  LOCKSTEP_ASSERT(in_engine_ > 0, "what is waited for is under way");
  const detail::BlockIo::Done done = io_->next();
  --in_engine_;
  finish(*reinterpret_cast<Piece*>(static_cast<uintptr_t>(done.tag)), done.result);
}

void BlockFile::finish(Piece& piece, int64_t result) {
  detail::BlockIo::Request& request = piece.request;
  if (result == -EINTR || result == -EAGAIN) {
    launch(piece);
    return;
  }
  // A direct transfer goes on at a page.
  if (file_.direct() && result > 0 && result < request.bytes) result = page_of(result);
  if (result == 0) result = -EIO;  // the file has its full size: nothing done is no end of it
  if (result >= 0 && result < request.bytes) {
    request.offset += result;
    request.data += result;
    request.bytes -= result;
    launch(piece);
    return;
  }
  if (result < 0 && failure_.empty()) {
    failure_ =
        base::str("cannot ", request.write ? "write " : "read ", base::with_commas(request.bytes),
                  " bytes at ", base::with_commas(request.offset), " of the offload file in ",
                  folder_, ": ", std::strerror(static_cast<int>(-result)),
                  ".\n  What it holds is lost: go on from the last checkpoint.");
  }
  piece.done = true;
  if (piece.transfer == nullptr) return;  // its caller removes it
  if (piece.bounce.bytes() > 0) {
    if (!request.write && result >= 0) {
      std::memcpy(piece.into, piece.bounce.data() + piece.skip, static_cast<size_t>(piece.wanted));
    }
    spare_.push_back(std::move(piece.bounce));
  }
  let_go(*piece.transfer);
  pieces_.remove_if([&](const Piece& other) { return &other == &piece; });
}

AlignedBuffer BlockFile::take_bounce() {
  if (spare_.empty() && bounces_ < kBounces) {
    spare_.emplace_back(kBounceBytes);
    ++bounces_;
  }
  while (spare_.empty()) advance();
  AlignedBuffer bounce = std::move(spare_.back());
  spare_.pop_back();
  return bounce;
}

bool BlockFile::under_way(int64_t number) const {
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [&](const Transfer& transfer) { return transfer.number == number; });
}

void BlockFile::wait(Ticket ticket) {
  while (under_way(ticket.number)) advance();
  throw_if_failed();
}

void BlockFile::settle() noexcept {
  while (!transfers_.empty()) advance();
}

void BlockFile::throw_if_failed() const {
  if (!failure_.empty()) throw StateError(failure_);
}

int64_t BlockFile::bounce_bytes() const { return bounces_ * kBounceBytes; }

std::string BlockFile::description() const {
  return base::str(base::bytes_text(bytes_), " in ", folder_, ", ",
                   file_.direct() ? "direct" : "through the page cache", ", by ", io_->name());
}

}  // namespace lockstep::files
