#include "lockstep/comm/process_group.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/detail/call_check.h"
#include "lockstep/comm/detail/call_queue.h"
#include "lockstep/comm/dtype.h"

namespace lockstep {
namespace {

using detail::CallCheck;

// Up to here a hand-over to another thread costs more than the collective.
constexpr int64_t kSmallBytes = 4 * KiB;

int64_t bytes_of(const at::Tensor& x) { return static_cast<int64_t>(x.nbytes()); }

std::vector<net::Term> net_terms(const std::vector<LeafTerm>& terms) {
  std::vector<net::Term> result;
  for (const LeafTerm& term : terms) result.push_back({term.leaves, term.value.data_ptr()});
  return result;
}

}  // namespace

struct ProcessGroup::Impl {
  explicit Impl(std::shared_ptr<net::Group> net_group)
      : group(std::move(net_group)), queue(std::make_shared<detail::CallQueue>(group->name())) {}

  /// `bytes` decides whether the call may run in the caller's thread.
  template <class Call>
  Work start(int64_t bytes, Call call) {
    return Work(queue->start(std::move(call), bytes <= kSmallBytes));
  }

  /// Runs the call in its turn and returns when it is complete.
  template <class Call>
  void run(Call call) {
    start(0, std::move(call)).wait();
  }

  const std::shared_ptr<net::Group> group;
  const std::shared_ptr<detail::CallQueue> queue;
};

ProcessGroup::ProcessGroup(std::shared_ptr<net::Group> group)
    : impl_(std::make_unique<Impl>(std::move(group))) {}

ProcessGroup::~ProcessGroup() {
  if (const int pending = impl_->queue->pending(); pending > 0) {
    // The thread must be joined, and the peers it waits for may be gone: end its wait.
    abort(base::str(
        "rank ", rank(), " of \"", name(), "\" left with ", pending, " collective(s) under way",
        std::uncaught_exceptions() > 0 ? ": it is ending on an error of its own." : "."));
  }
  impl_->queue->close();
}

int ProcessGroup::rank() const { return impl_->group->rank(); }
int ProcessGroup::size() const { return impl_->group->size(); }
const std::string& ProcessGroup::name() const { return impl_->group->name(); }
net::Group& ProcessGroup::group() const { return *impl_->group; }

at::Tensor ProcessGroup::allocate(at::IntArrayRef shape, at::ScalarType type) {
  const CallCheck check(*impl_->group, "allocate");
  const auto dtype = dtype_of(type);
  if (!dtype) check.fail(base::str(type, " is no type that collectives carry."), "Choose another.");
  int64_t bytes = net::width_of(*dtype);
  for (const int64_t dim : shape) bytes *= dim;
  if (bytes < 0) check.fail(base::str("shape ", shape, " has a negative dim."), "Mend the shape.");
  if (bytes == 0) return at::zeros(shape, type);

  net::HeapBlock block = impl_->group->allocate(bytes);
  void* data = block.data();
  std::memset(data, 0, bytes);  // recycled blocks hold what was there before
  return at::from_blob(
      data, shape, [block = std::move(block)](void*) {}, at::TensorOptions().dtype(type));
}

Work ProcessGroup::all_reduce(at::Tensor x, ReduceOp op) {
  const CallCheck check(*impl_->group, "all_reduce");
  const net::DType type = check.tensor(x, "x");
  check.reducible(x, op);
  return impl_->start(bytes_of(x), [group = impl_->group.get(), x, op, type] {
    group->all_reduce(x.data_ptr(), x.numel(), type, op);
  });
}

Work ProcessGroup::all_reduce(std::vector<LeafTerm> terms, int leaves, at::Tensor result) {
  const CallCheck check(*impl_->group, "all_reduce");
  const net::DType type = check.terms(terms, leaves, result.numel(), result);
  const int64_t bytes = bytes_of(result);
  return impl_->start(
      bytes, [group = impl_->group.get(), terms = std::move(terms), leaves, result, type] {
        group->all_reduce_terms(net_terms(terms), leaves, result.data_ptr(), result.numel(), type);
      });
}

Work ProcessGroup::reduce_scatter(at::Tensor in, at::Tensor out, ReduceOp op) {
  const CallCheck check(*impl_->group, "reduce_scatter");
  const net::DType type = check.tensor(in, "in");
  check.tensor(out, "out");
  check.divides(in.numel(), "in", out.numel(), "out", "reduce_scatter_uneven");
  check.same_type(in, out);
  check.reducible(in, op);
  check.apart(in, out);
  return impl_->start(bytes_of(in), [group = impl_->group.get(), in, out, op, type] {
    const std::vector<int64_t> counts(group->size(), out.numel());
    group->reduce_scatter(in.data_ptr(), out.data_ptr(), counts, type, op);
  });
}

Work ProcessGroup::reduce_scatter_uneven(at::Tensor in, at::Tensor out, std::vector<int64_t> counts,
                                         ReduceOp op) {
  const CallCheck check(*impl_->group, "reduce_scatter_uneven");
  const net::DType type = check.tensor(in, "in");
  check.tensor(out, "out");
  check.counts(counts, "counts", in.numel(), "in");
  check.own_count(counts, out.numel(), "out");
  check.same_type(in, out);
  check.reducible(in, op);
  check.apart(in, out);
  const int64_t bytes = bytes_of(in);
  return impl_->start(bytes,
                      [group = impl_->group.get(), in, out, counts = std::move(counts), op, type] {
                        group->reduce_scatter(in.data_ptr(), out.data_ptr(), counts, type, op);
                      });
}

Work ProcessGroup::reduce_scatter_uneven(std::vector<LeafTerm> terms, int leaves, at::Tensor out,
                                         std::vector<int64_t> counts) {
  const CallCheck check(*impl_->group, "reduce_scatter_uneven");
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  check.counts(counts, "counts", total, "a term");
  const int64_t own_first = std::accumulate(counts.begin(), counts.begin() + rank(), int64_t{0});
  const net::DType type = check.terms(terms, leaves, total, out, own_first);
  check.own_count(counts, out.numel(), "out");
  const int64_t bytes = total * net::width_of(type);
  return impl_->start(bytes, [group = impl_->group.get(), terms = std::move(terms), leaves, out,
                              counts = std::move(counts), type] {
    group->reduce_scatter_terms(net_terms(terms), leaves, out.data_ptr(), counts, type);
  });
}

Work ProcessGroup::all_gather(at::Tensor in, at::Tensor out) {
  const CallCheck check(*impl_->group, "all_gather");
  const net::DType type = check.tensor(in, "in");
  check.tensor(out, "out");
  check.divides(out.numel(), "out", in.numel(), "in", "all_gather_uneven");
  check.same_type(in, out);
  check.own_part_or_apart(in, out, in.numel() * rank());
  return impl_->start(bytes_of(out), [group = impl_->group.get(), in, out, type] {
    const std::vector<int64_t> counts(group->size(), in.numel());
    group->all_gather(in.data_ptr(), out.data_ptr(), counts, type);
  });
}

Work ProcessGroup::all_gather_uneven(at::Tensor in, at::Tensor out, std::vector<int64_t> counts) {
  const CallCheck check(*impl_->group, "all_gather_uneven");
  const net::DType type = check.tensor(in, "in");
  check.tensor(out, "out");
  check.counts(counts, "counts", out.numel(), "out");
  check.own_count(counts, in.numel(), "in");
  check.same_type(in, out);
  check.own_part_or_apart(in, out,
                          std::accumulate(counts.begin(), counts.begin() + rank(), int64_t{0}));
  const int64_t bytes = bytes_of(out);
  return impl_->start(bytes,
                      [group = impl_->group.get(), in, out, counts = std::move(counts), type] {
                        group->all_gather(in.data_ptr(), out.data_ptr(), counts, type);
                      });
}

Work ProcessGroup::broadcast(at::Tensor x, int root) {
  const CallCheck check(*impl_->group, "broadcast");
  const net::DType type = check.tensor(x, "x");
  check.rank_in_group(root, "root");
  return impl_->start(bytes_of(x), [group = impl_->group.get(), x, type, root] {
    group->broadcast(x.data_ptr(), x.numel(), type, root);
  });
}

Work ProcessGroup::all_to_all(at::Tensor in, std::vector<int64_t> send_counts, at::Tensor out,
                              std::vector<int64_t> recv_counts) {
  const CallCheck check(*impl_->group, "all_to_all");
  const net::DType type = check.tensor(in, "in");
  check.tensor(out, "out");
  check.counts(send_counts, "send_counts", in.numel(), "in");
  check.counts(recv_counts, "recv_counts", out.numel(), "out");
  check.same_type(in, out);
  check.apart(in, out);
  const int64_t bytes = std::max(bytes_of(in), bytes_of(out));
  return impl_->start(bytes, [group = impl_->group.get(), in, send_counts = std::move(send_counts),
                              out, recv_counts = std::move(recv_counts), type] {
    group->all_to_all(in.data_ptr(), send_counts, out.data_ptr(), recv_counts, type);
  });
}

Work ProcessGroup::send(at::Tensor x, int to, int tag) {
  const CallCheck check(*impl_->group, "send");
  const net::DType type = check.tensor(x, "x");
  check.other_rank(to, "to");
  return Work(impl_->queue->start([group = impl_->group.get(), x, type, to,
                                   tag] { group->send(x.data_ptr(), x.numel(), type, to, tag); },
                                  /*may_run_here=*/false));
}

Work ProcessGroup::recv(at::Tensor x, int from, int tag) {
  const CallCheck check(*impl_->group, "recv");
  const net::DType type = check.tensor(x, "x");
  check.other_rank(from, "from");
  return Work(impl_->queue->start([group = impl_->group.get(), x, type, from,
                                   tag] { group->recv(x.data_ptr(), x.numel(), type, from, tag); },
                                  /*may_run_here=*/false));
}

void ProcessGroup::barrier() {
  impl_->run([group = impl_->group.get()] { group->barrier(); });
}

std::vector<std::string> ProcessGroup::gather_text(const std::string& mine) {
  std::vector<std::string> all;
  impl_->run([group = impl_->group.get(), &mine, &all] { all = group->gather_text(mine); });
  return all;
}

std::shared_ptr<ProcessGroup> ProcessGroup::subgroup(const std::vector<int>& ranks,
                                                     const std::string& name) {
  std::shared_ptr<net::Group> made;
  impl_->run(
      [group = impl_->group.get(), &ranks, &name, &made] { made = group->subgroup(ranks, name); });
  return made ? std::make_shared<ProcessGroup>(std::move(made)) : nullptr;
}

void ProcessGroup::abort(const std::string& message) { impl_->group->abort(message); }

GroupTotals ProcessGroup::totals() const {
  const net::LedgerEntry total = impl_->group->ledger().total();
  return {total.bytes, total.seconds, impl_->queue->exposed_seconds()};
}

void ProcessGroup::reset_totals() {
  impl_->group->reset_ledger();
  impl_->queue->reset_exposed();
}

}  // namespace lockstep
