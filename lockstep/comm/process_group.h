/// Ranks that communicate, in order: the tensor face of net::Group.
///
/// A call that ends in `Work` starts and returns; `wait()` is stream-ordered and `synchronize()`
/// blocks the host: on a CPU both block.
///
/// Calls of one group run in the order in which they were made, none overtakes another: on the
/// group's communication thread (`ls-comm-NAME`), except a synchronous call or a collective of at
/// most 4 KiB, which runs in the caller's thread if nothing is before it, and a call that has not
/// begun when wait() comes, which the waiter runs itself. All ranks of a group make the same
/// collectives in the same order. Two ranks that exchange large messages: one sends first, the
/// other receives first.
///
/// Arguments are checked before any byte is sent. A CommError finishes the group: later calls throw
/// it too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/net/group.h"
#include "lockstep/net/world.h"

namespace lockstep {

using net::ReduceOp;

/// A collective under way. Holds its tensors until it is complete. Copies share the state.
class Work {
 public:
  /// Returns when the result is there; throws what the collective threw (CommError), each time. No
  /// endless wait: every call before this one ends within the group's timeout.
  void wait();
  void synchronize() { wait(); }
  bool done() const;
  /// How long the call blocked its callers: the part of it that was not hidden.
  double exposed_seconds() const;

  struct State;
  explicit Work(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

/// One of this rank's maximal whole subtrees of a canonical sum.
struct LeafTerm {
  plan::LeafRange leaves;
  at::Tensor value;  // contiguous, float32 or float64; the same size for all terms
};

struct GroupTotals {
  int64_t bytes = 0;           // of peers' memory, read and written
  double seconds = 0;          // inside collectives
  double exposed_seconds = 0;  // callers blocked in wait() or in calls they ran themselves
};

class ProcessGroup {
 public:
  explicit ProcessGroup(std::shared_ptr<net::Group> group);
  /// If calls are still under way, first ends every wait of the job: a peer may be gone.
  ~ProcessGroup();

  int rank() const;
  int size() const;
  const std::string& name() const;

  /// A zero-filled tensor in the shared heap: collectives on it (and on views of it) copy nothing.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type = at::kFloat);

  // Asynchronous. Tensors must be contiguous CPU tensors, else UsageError. ReduceOp::average is
  // for floating-point types; a sum or average of bfloat16 or half is taken in float32 and rounded
  // once.
  [[nodiscard]] Work all_reduce(at::Tensor x, ReduceOp op = ReduceOp::sum);
  /// The canonical sum over `leaves` leaves; every rank finds it in `result` (may be a term's
  /// tensor). A rank may bring no term.
  [[nodiscard]] Work all_reduce(std::vector<LeafTerm> terms, int leaves, at::Tensor result);
  /// `in` is the concatenation of all ranks' slices; numel must be size() * out.numel(). `in` and
  /// `out` are apart, and so in all_to_all.
  [[nodiscard]] Work reduce_scatter(at::Tensor in, at::Tensor out, ReduceOp op = ReduceOp::sum);
  [[nodiscard]] Work reduce_scatter_uneven(at::Tensor in, at::Tensor out,
                                           std::vector<int64_t> counts,
                                           ReduceOp op = ReduceOp::sum);
  /// The canonical sum over `leaves` leaves; rank r finds its counts[r] elements of it in `out`,
  /// which may be its own slice of one of its terms.
  [[nodiscard]] Work reduce_scatter_uneven(std::vector<LeafTerm> terms, int leaves, at::Tensor out,
                                           std::vector<int64_t> counts);
  /// `in` may be this rank's part of `out`.
  [[nodiscard]] Work all_gather(at::Tensor in, at::Tensor out);
  [[nodiscard]] Work all_gather_uneven(at::Tensor in, at::Tensor out, std::vector<int64_t> counts);
  [[nodiscard]] Work broadcast(at::Tensor x, int root);
  [[nodiscard]] Work all_to_all(at::Tensor in, std::vector<int64_t> send_counts, at::Tensor out,
                                std::vector<int64_t> recv_counts);
  [[nodiscard]] Work send(at::Tensor x, int to, int tag = 0);
  [[nodiscard]] Work recv(at::Tensor x, int from, int tag = 0);

  // Synchronous.
  void barrier();
  std::vector<std::string> gather_text(const std::string& mine);
  /// All ranks of this group call it alike; ranks outside `ranks` get a null pointer.
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name);

  /// Ends every wait of every rank of the job with `message`.
  void abort(const std::string& message);

  /// Since the last reset. Call when no work is under way.
  GroupTotals totals() const;
  void reset_totals();

  net::Group& group() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
