/// What ranks of a job share besides their heaps: fixed structures in the region, each written by
/// one rank and read by its peers.
///
///   region:  | job header | rank 0: control, lines of groups 0, 1, ... | rank 1: ... | heap
///   0 | heap 1 ... lines of a group:  | slot 0 | slot 1 | steps | broken, name | a channel for
///   each peer |
///
/// Rank r writes its own lines only. Descriptor slots alternate: collective k is announced in slot
/// k mod 2. A rank announces k + 2 only after all peers have announced k + 1, hence have left k, so
/// nobody still reads the slot that is overwritten. Which lines a group has on each rank: seats.h.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/net/signal.h"
#include "lockstep/net/types.h"
#include "lockstep/plan/collective_steps.h"

namespace lockstep::net {

/// Groups a rank can be in at a time. Only those in use take memory.
inline constexpr int kMaxGroups = 1024;
inline constexpr int kRecentOperations = 20;
inline constexpr uint64_t kRegionMagic = 0x6c6f636b73746570;  // "lockstep"
inline constexpr uint32_t kRegionVersion = 3;

/// Text that another process may read while it is written: a sequence lock. One writer at a time.
template <int kBytes>
class SharedText {
 public:
  /// Keeps the first kBytes bytes.
  void set(std::string_view text) {
    const auto length = static_cast<uint32_t>(std::min<size_t>(text.size(), kBytes));
    const uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    length_.store(length, std::memory_order_release);
    for (uint32_t at = 0; at < length; at += 8) {
      uint64_t word = 0;
      for (uint32_t i = 0; i < 8 && at + i < length; ++i) {
        word |= uint64_t{static_cast<unsigned char>(text[at + i])} << (8 * i);
      }
      words_[at / 8].store(word, std::memory_order_release);
    }
    version_.store(version + 2, std::memory_order_release);
  }

  std::string get() const {
    std::string text;
    // A writer that died half way leaves an odd version: after some tries, what is there will do.
    for (int tries = 0; tries < 1000; ++tries) {
      const uint32_t before = version_.load(std::memory_order_acquire);
      text.assign(std::min<uint32_t>(length_.load(std::memory_order_acquire), kBytes), '\0');
      for (size_t at = 0; at < text.size(); at += 8) {
        const uint64_t word = words_[at / 8].load(std::memory_order_acquire);
        for (size_t i = 0; i < 8 && at + i < text.size(); ++i) {
          text[at + i] = static_cast<char>(word >> (8 * i));
        }
      }
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) break;
    }
    return text;
  }

 private:
  std::atomic<uint32_t> version_{0};
  std::atomic<uint32_t> length_{0};
  std::array<std::atomic<uint64_t>, (kBytes + 7) / 8> words_{};
};

struct JobHeader {
  std::atomic<uint64_t> magic;
  uint32_t version;
  int32_t ranks;
  int64_t heap_bytes;  // address space of each rank's heap
  int64_t total_bytes;
  std::atomic<uint32_t> abort_claimed;
  std::atomic<uint32_t> aborted;
  std::atomic<uint32_t> abort_passed_on;  // ranks of other hosts know of it
  SharedText<4000> abort_message;
};

/// One call, as the ring of recent operations keeps it.
struct OperationRecord {
  std::atomic<uint64_t> what;  // sequence << 24 | operation << 16 | dtype << 8 | reduce op
  std::atomic<int64_t> count;
  std::atomic<uint64_t> seat;  // use << 32 | lines: seats.h
};

struct alignas(64) RankControl {
  std::atomic<int32_t> pid;  // 0 before the rank has joined
  std::atomic<int32_t> finished;
  std::atomic<int32_t> elsewhere;  // 1: it is on another host, and writes nothing here
  std::atomic<int32_t> exit_code;
  std::atomic<int64_t> pid_started;  // tells a process from a later one of the same pid
  std::atomic<int64_t> step;
  SharedText<31> phase;
  SharedText<63> detail;
  SharedText<4000> error;
  std::atomic<uint64_t> operations;  // calls so far; call n is in recent[n % kRecentOperations]
  std::array<OperationRecord, kRecentOperations> recent;
};

/// A term of a canonical sum as its holder announces it.
struct TermEntry {
  int32_t lo;
  int32_t hi;
  int64_t address;
};

inline constexpr int64_t kNotReachable = -1;
inline constexpr int64_t kFewBytes = 8;
inline constexpr uint8_t kInPayload = 1;
inline constexpr uint8_t kInFew = 2;

/// What a rank announces when it comes to a collective. The smallest calls are one cache line: a
/// second one would double the time that a peer needs to fetch them.
struct alignas(64) Descriptor {
  Signal arrived;  // the low 32 bits of the collective's number
  Operation operation;
  DType type;
  ReduceOp reduce_op;
  uint8_t inlined;  // all this rank's data are in here: kInPayload or kInFew
  int16_t root;
  plan::Algorithm algorithm;
  int64_t count;
  uint64_t counts_hash;  // of the counts by rank, or of a name
  int64_t in;            // addresses for peers; kNotReachable for memory that they cannot read
  int64_t out;
  union {
    int64_t list;                     // of `items` TermEntry or int64_t counts
    std::array<char, kFewBytes> few;  // without items: data that share this cache line
  };
  int32_t items;
  int32_t leaves;
  std::array<char, plan::kInlineBytes> payload;
  std::array<char, 256> list_room;  // where the list is, unless it is longer

  const char* inline_data() const { return inlined == kInFew ? few.data() : payload.data(); }
};
static_assert(sizeof(Descriptor) == 64 + plan::kInlineBytes + 256);

/// A part of a message under way from one rank to another.
struct alignas(64) Parcel {
  int64_t total;  // elements of the whole message
  int64_t first;  // of this parcel
  int64_t count;
  int64_t address;
  int32_t tag;
  DType type;
  bool lent;  // the sender's own memory, not a copy
};

inline constexpr int kParcels = 4;

/// Messages of the user and those of a collective plan do not meet: each has channels of its own.
enum class Lane { messages, plans };
inline constexpr int kLanes = 2;

/// From this rank to one peer, and what this rank has taken from that peer.
struct alignas(64) Channel {
  Signal posted;
  alignas(64) Signal taken;
  std::array<Parcel, kParcels> parcels;
};

struct GroupLines {
  std::array<Descriptor, 2> slots;
  alignas(64) Signal steps;      // phases inside collectives
  alignas(64) Bell bell;         // this rank sleeps for want of parcels of a plan
  std::atomic<int64_t> staging;  // address of this rank's staging block
  std::atomic<uint32_t> moving;  // 1 while this rank uses memory of other threads
  std::atomic<int64_t>
      waiting_since;  // ns of the steady clock; 0: in no long wait; < 0: its end was an error
  std::atomic<int32_t> waiting_for;          // rank of the job; -1: it waits for nobody now
  alignas(64) std::atomic<uint64_t> broken;  // the first collective that cannot be; 0: none
  std::atomic<uint32_t> use;   // groups that these lines have served, this one included
  std::atomic<uint32_t> left;  // the last of them that this rank has left
  SharedText<48> name;
  SharedText<1000> broken_message;
};

}  // namespace lockstep::net
