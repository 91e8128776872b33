#include "lockstep/net/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace lockstep::net {
namespace {

constexpr int64_t kPage = 4 * KiB;
constexpr int64_t kHugePage = 2 * MiB;
// Processes have 47 bits of addresses; a job's heaps take a small part of them. Thread sanitizer
// keeps shadows of every mapped byte, so its builds map little.
#ifdef LOCKSTEP_SANITIZED
constexpr int64_t kMostHeapBytes = 8 * GiB;
#else
constexpr int64_t kMostHeapBytes = 8 * 1024 * GiB;
#endif

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/// Offsets of the parts of a region; a function of the number of ranks and the heap's size.
struct Layout {
  int ranks;
  int64_t heap_bytes;

  int64_t group_stride() const {
    return round_up(static_cast<int64_t>(sizeof(GroupLines) + kLanes * ranks * sizeof(Channel)),
                    kPage);
  }
  int64_t control_bytes() const { return round_up(sizeof(RankControl), kPage); }
  int64_t rank_stride() const { return control_bytes() + kMaxGroups * group_stride(); }
  int64_t control(int rank) const {
    return round_up(sizeof(JobHeader), kPage) + rank * rank_stride();
  }
  int64_t lines(int rank, int group) const {
    return control(rank) + control_bytes() + group * group_stride();
  }
  // Heaps a power of two apart would put the same block of all ranks on addresses that differ in
  // one high bit only. The first-level caches of some processors tell lines apart by a hash of the
  // lower bits (AMD's way predictor: bits 12 to 27): a loop over two such blocks then misses on
  // every access, measured at three to seven times the time. A page more between heaps keeps them
  // apart.
  int64_t heap(int rank) const {
    return round_up(control(ranks), kHugePage) + rank * (heap_bytes + kHugePage);
  }
  int64_t total() const { return heap(ranks); }
};

Layout layout_of(const Region::Impl& region) { return {region.ranks, region.heap_bytes}; }

Layout plan_layout(int ranks, int64_t heap_bytes) {
  if (ranks < 1) throw UsageError(base::str("a job needs at least one rank, not ", ranks));
  if (heap_bytes < 1) throw UsageError(base::str("heap_bytes is ", heap_bytes));
  heap_bytes = std::min(heap_bytes, kMostHeapBytes / ranks / kHugePage * kHugePage);
  return {ranks, round_up(heap_bytes, kHugePage)};
}

void map(Region::Impl& region, const Layout& layout, int flags) {
  region.ranks = layout.ranks;
  region.heap_bytes = layout.heap_bytes;
  region.bytes = layout.total();
  // Mapped with room to spare, so that the base lies on a huge page.
  void* at = mmap(nullptr, region.bytes + kHugePage, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) {
    auto* start = static_cast<char*>(at);
    auto* aligned = reinterpret_cast<char*>(
        round_up(static_cast<int64_t>(reinterpret_cast<uintptr_t>(at)), kHugePage));
    if (aligned > start) munmap(start, aligned - start);
    const int64_t tail = start + kHugePage - aligned;
    if (tail > 0) munmap(aligned + region.bytes, tail);
    at = mmap(aligned, region.bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE | MAP_FIXED,
              region.descriptor, 0);
  }
  if (at == MAP_FAILED) {
    throw EnvironmentError(base::str(
        "cannot map ", base::bytes_text(region.bytes), " of addresses for ", layout.ranks,
        " ranks: ", std::strerror(errno), ". Is there a limit on address space (ulimit -v)?"));
  }
  region.base = static_cast<char*>(at);
  madvise(region.base + layout.heap(0), layout.total() - layout.heap(0), MADV_DONTDUMP);
}

void write_header(Region::Impl& region) {
  JobHeader& header = region.header();
  header.version = kRegionVersion;
  header.ranks = region.ranks;
  header.heap_bytes = region.heap_bytes;
  header.total_bytes = region.bytes;
  header.magic.store(kRegionMagic, std::memory_order_release);
  for (int rank = 0; rank < region.ranks; ++rank) region.control(rank).step.store(-1);
}

}  // namespace

Region::Impl::~Impl() {
  if (base != nullptr) munmap(base, bytes);
  if (descriptor >= 0) close(descriptor);
}

RankControl& Region::Impl::control(int rank) const {
  return *reinterpret_cast<RankControl*>(base + layout_of(*this).control(rank));
}

GroupLines& Region::Impl::lines(int rank, int group) const {
  return *reinterpret_cast<GroupLines*>(base + layout_of(*this).lines(rank, group));
}

Channel& Region::Impl::channel(int rank, int group, int peer, Lane lane) const {
  const int64_t index = static_cast<int>(lane) * int64_t{ranks} + peer;
  return *reinterpret_cast<Channel*>(base + layout_of(*this).lines(rank, group) +
                                     sizeof(GroupLines) + index * sizeof(Channel));
}

char* Region::Impl::heap(int rank) const { return base + layout_of(*this).heap(rank); }

Region::Region(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Region::~Region() = default;

std::shared_ptr<Region> Region::create(int ranks, int64_t heap_bytes) {
  const Layout layout = plan_layout(ranks, heap_bytes);
  auto impl = std::make_unique<Impl>();
  // Kernels before 6.3 do not know the flag that forbids executing the memory.
  impl->descriptor = memfd_create("lockstep", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (impl->descriptor < 0) impl->descriptor = memfd_create("lockstep", MFD_CLOEXEC);
  if (impl->descriptor < 0 || ftruncate(impl->descriptor, layout.total()) != 0) {
    throw EnvironmentError(
        base::str("cannot make shared memory for ", ranks, " ranks: ", std::strerror(errno)));
  }
  map(*impl, layout, MAP_SHARED);
  write_header(*impl);
  return std::shared_ptr<Region>(new Region(std::move(impl)));
}

std::shared_ptr<Region> Region::attach(int fd) {
  const auto refuse = [fd](const std::string& why) {
    return EnvironmentError(base::str("descriptor ", fd, " holds no region of Lockstep: ", why,
                                      ". Ranks are started by `lockstep run`."));
  };
  struct stat info {};
  if (fstat(fd, &info) != 0) throw refuse(std::strerror(errno));
  auto impl = std::make_unique<Impl>();
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) throw refuse(std::strerror(errno));
  impl->descriptor = copy;
  if (info.st_size < static_cast<off_t>(sizeof(JobHeader))) throw refuse("it is too short");
  auto* peek =
      static_cast<JobHeader*>(mmap(nullptr, sizeof(JobHeader), PROT_READ, MAP_SHARED, copy, 0));
  if (peek == MAP_FAILED) throw refuse(std::strerror(errno));
  const bool ours = peek->magic.load(std::memory_order_acquire) == kRegionMagic;
  const uint32_t version = peek->version;
  const Layout layout{peek->ranks, peek->heap_bytes};
  const int64_t total = peek->total_bytes;
  munmap(peek, sizeof(JobHeader));
  if (!ours) throw refuse("its first bytes are others");
  if (version != kRegionVersion) {
    throw refuse(base::str("it is of version ", version, ", this program of ", kRegionVersion));
  }
  if (layout.ranks < 1 || layout.total() != total || total != info.st_size) {
    throw refuse(base::str("its size is ", info.st_size, ", its header says ", total));
  }
  map(*impl, layout, MAP_SHARED);
  return std::shared_ptr<Region>(new Region(std::move(impl)));
}

std::shared_ptr<Region> Region::in_process(int ranks, int64_t heap_bytes) {
  const Layout layout = plan_layout(ranks, heap_bytes);
  auto impl = std::make_unique<Impl>();
  map(*impl, layout, MAP_PRIVATE | MAP_ANONYMOUS);
  write_header(*impl);
  return std::shared_ptr<Region>(new Region(std::move(impl)));
}

int Region::fd() const { return impl_->descriptor; }
int Region::ranks() const { return impl_->ranks; }

std::vector<int> Region::ranks_here() const {
  std::vector<int> here;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (impl_->control(rank).elsewhere.load(std::memory_order_acquire) == 0) here.push_back(rank);
  }
  return here;
}

void Region::set_ranks_here(const std::vector<int>& here) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const bool is_here = std::find(here.begin(), here.end(), rank) != here.end();
    impl_->control(rank).elsewhere.store(is_here ? 0 : 1, std::memory_order_release);
  }
}

RankStatus Region::status(int rank) const {
  const RankControl& control = impl_->control(rank);
  RankStatus status;
  status.step = control.step.load(std::memory_order_relaxed);
  status.phase = control.phase.get();
  status.detail = control.detail.get();
  status.pid = control.pid.load(std::memory_order_acquire);
  status.finished = control.finished.load(std::memory_order_acquire) != 0;
  status.exit_code = control.exit_code.load(std::memory_order_acquire);
  status.error = control.error.get();
  return status;
}

void Region::abort(const std::string& message) {
  JobHeader& header = impl_->header();
  if (header.abort_claimed.exchange(1) != 0) return;
  header.abort_message.set(message);
  header.aborted.store(1, std::memory_order_seq_cst);
}

bool Region::aborted() const {
  return impl_->header().aborted.load(std::memory_order_acquire) != 0;
}

std::string Region::abort_message() const {
  return aborted() ? impl_->header().abort_message.get() : std::string();
}

namespace {

std::string text_of(const Region::Impl& region, int rank, const OperationRecord& record) {
  const uint64_t what = record.what.load(std::memory_order_relaxed);
  const uint64_t seat = record.seat.load(std::memory_order_relaxed);
  const GroupLines& lines = region.lines(rank, static_cast<int>(seat & 0xffff'ffff));
  const bool is_there = lines.use.load(std::memory_order_relaxed) == seat >> 32;
  return base::str(
      describe(static_cast<Operation>(what >> 16 & 0xff),
               record.count.load(std::memory_order_relaxed), static_cast<DType>(what >> 8 & 0xff),
               static_cast<ReduceOp>(what & 0xff), -1),
      is_there ? base::str(" on \"", lines.name.get(), "\"") : " on a group since freed", " #",
      what >> 24);
}

/// The calls that the rank has waited in for longer than a moment, newest first; so too one that
/// ended in an error, if it has made no other since.
template <class Visit>
void visit_pending(const Region::Impl& region, int rank, Visit&& visit) {
  const RankControl& control = region.control(rank);
  const uint64_t end = control.operations.load(std::memory_order_acquire);
  std::set<uint64_t> looked_at;
  // The newest call of each group is the only one that can be pending in it.
  for (uint64_t n = end; n > 0 && n + kRecentOperations > end; --n) {
    const OperationRecord& record = control.recent[(n - 1) % kRecentOperations];
    const uint64_t seat = record.seat.load(std::memory_order_relaxed) & 0xffff'ffff;
    if (!looked_at.insert(seat).second) continue;
    const GroupLines& lines = region.lines(rank, static_cast<int>(seat));
    const int64_t since = lines.waiting_since.load(std::memory_order_acquire);
    if (lines.waiting_for.load(std::memory_order_relaxed) < 0) continue;
    if (since > 0 || (since < 0 && n == end)) visit(record, lines);
  }
}

}  // namespace

std::vector<std::string> Region::recent_operations(int rank) const {
  const RankControl& control = impl_->control(rank);
  const uint64_t end = control.operations.load(std::memory_order_acquire);
  std::vector<std::string> lines;
  for (uint64_t n = end > kRecentOperations ? end - kRecentOperations : 0; n < end; ++n) {
    lines.push_back(text_of(*impl_, rank, control.recent[n % kRecentOperations]));
  }
  return lines;
}

int Region::Impl::waits_for(int rank) const {
  int peer = -1;
  visit_pending(*this, rank, [&](const OperationRecord&, const GroupLines& lines) {
    if (peer < 0) peer = lines.waiting_for.load(std::memory_order_relaxed);
  });
  return peer;
}

std::vector<std::string> Region::pending_calls(int rank) const {
  const int64_t now = steady_nanoseconds();
  std::vector<std::string> texts;
  visit_pending(*impl_, rank, [&](const OperationRecord& record, const GroupLines& lines) {
    const int64_t since = lines.waiting_since.load(std::memory_order_acquire);
    if (since <= 0) return;  // no longer
    const int64_t tenths = (now - since) / 100'000'000;
    texts.push_back(base::str(text_of(*impl_, rank, record), ", for ", tenths / 10, ".",
                              tenths % 10, " s, for rank ",
                              lines.waiting_for.load(std::memory_order_relaxed)));
  });
  return texts;
}

}  // namespace lockstep::net
