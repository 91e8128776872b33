/// Ranks that communicate, in order: the byte face of a process group.
///
/// Every call blocks until this rank's part is complete. One thread at a time per group; different
/// groups may be used by different threads at once. Before any data is used, each rank compares the
/// peers' fingerprints (sequence, operation, type, counts, root) with its own: a mismatch ends in a
/// CommError on all ranks that names operation number, ranks and both shapes. No wait is endless: a
/// timeout names who has arrived, who has not, and where the missing rank was last seen.
///
/// Sums are canonical by default: per element, the additions of the sum tree over leaves, in rising
/// order (plan/sum_tree.h). Without leaf ranges, rank r's tensor is leaf r of `size()` leaves.
/// Sums and averages of bf16 and fp16 are taken in fp32 and rounded once.
///
/// Memory from `allocate` is read and written by peers directly; other memory is staged through it
/// (on the threads engine all memory is direct).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/net/ledger.h"
#include "lockstep/net/types.h"
#include "lockstep/plan/algorithm_table.h"
#include "lockstep/plan/sum_tree.h"

namespace lockstep::net {

class Endpoint;

/// A term of a canonical sum: `data` holds the sum over `leaves`, one of this rank's maximal whole
/// subtrees.
struct Term {
  plan::LeafRange leaves;
  const void* data = nullptr;
};

/// Memory of the shared heap; given back when the last copy of the handle goes.
struct HeapBlock {
  std::shared_ptr<void> memory;  // 2 MiB aligned when larger than that, else 64 bytes
  int64_t bytes = 0;
  void* data() const { return memory.get(); }
};

class Group {
 public:
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;  // this rank's place in the group
  int size() const;
  const std::string& name() const;
  const std::vector<int>& members() const;  // world ranks, in group order
  Endpoint& endpoint() const;
  /// The group's ranks by host, as hierarchical algorithms take them.
  std::vector<std::vector<int>> hosts() const;

  /// Throws OutOfMemory naming the heap's size and the setting that enlarges it.
  HeapBlock allocate(int64_t bytes);

  /// Reduces `data` over the ranks, in place. Every rank ends with the same bits.
  void all_reduce(void* data, int64_t count, DType type, ReduceOp op = ReduceOp::sum);

  /// The canonical sum over `leaves` leaves: each rank brings its terms (none, one or several), and
  /// every rank finds the sum in `result`, which may be the memory of one of its own terms. If no
  /// rank brings a term the result is zero. f32 or f64.
  void all_reduce_terms(std::span<const Term> terms, int leaves, void* result, int64_t count,
                        DType type);

  /// `in` holds the slices of all ranks, back to back: counts[r] elements for rank r, the same
  /// counts on every rank. `out` receives the reduced slice of this rank.
  void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType type,
                      ReduceOp op = ReduceOp::sum);

  /// The same for a canonical sum over leaves: each term spans all slices.
  void reduce_scatter_terms(std::span<const Term> terms, int leaves, void* out,
                            std::span<const int64_t> counts, DType type);

  /// `out` receives counts[r] elements of each rank r, back to back. `in` may be this rank's part
  /// of `out`.
  void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType type);

  /// Of at most 256 bytes the root waits for nobody, and the others only for it: a mismatch with
  /// another rank is found in the next call.
  void broadcast(void* data, int64_t count, DType type, int root);

  /// Sends send_counts[r] elements to each rank r and receives recv_counts[r] from it, back to
  /// back. in and out must not overlap. Throws CommError if a pair of ranks disagrees on a count.
  void all_to_all(const void* in, std::span<const int64_t> send_counts, void* out,
                  std::span<const int64_t> recv_counts, DType type);

  void barrier();

  /// Between two ranks of the group, in order per pair of ranks. `send` returns when the data have
  /// been read or copied; up to four messages of at most 256 KiB to one rank are always copied, so
  /// ranks may send to each other before they receive. A receive whose count, type or tag differs
  /// from its send ends in a CommError on both; a sender that has gone on finds it in its next
  /// call.
  void send(const void* data, int64_t count, DType type, int to, int tag = 0);
  void recv(void* data, int64_t count, DType type, int from, int tag = 0);

  /// Gathers byte strings of any lengths: result[r] is rank r's.
  std::vector<std::string> gather_text(const std::string& mine);

  /// A group of the given ranks of this group, in that order. All ranks of this group call it, in
  /// the same order, with the same name; ranks that are not in `ranks` get a null pointer.
  /// Different ranks may pass different lists (the groups along a mesh axis). Groups may be freed
  /// and made again without end, and by several threads at once that have parents of their own; a
  /// rank can be in kMaxGroups (control.h) at a time.
  std::shared_ptr<Group> subgroup(const std::vector<int>& ranks, const std::string& name);

  /// Ends every wait of every rank of the job with a CommError that quotes `message`.
  void abort(const std::string& message);

  void set_timeout(std::chrono::milliseconds timeout);
  /// From the next call on, of this group and of sub-groups made from it. All ranks pass the same
  /// table, or meet as a mismatch. The endpoint's options say what it is at first.
  void set_algorithms(plan::AlgorithmTable algorithms);
  const plan::AlgorithmTable& algorithms() const;
  /// On a modelled network (EndpointOptions::network): sets this rank's clock to 0, and tells how
  /// late it is by then. 0 on a real one.
  void restart_modelled_clock();
  double modelled_seconds() const;

  const Ledger& ledger() const;
  void reset_ledger();

  struct Impl;

 private:
  friend class Endpoint;
  explicit Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::net
