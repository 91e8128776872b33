#include "lockstep/comm/detail/call_check.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/dtype.h"
#include "lockstep/plan/sum_tree.h"

namespace lockstep::detail {
namespace {

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto* a_begin = static_cast<const char*>(a.data_ptr());
  const auto* b_begin = static_cast<const char*>(b.data_ptr());
  return a.nbytes() > 0 && b.nbytes() > 0 && a_begin < b_begin + b.nbytes() &&
         b_begin < a_begin + a.nbytes();
}

}  // namespace

void CallCheck::fail(const std::string& what, const std::string& advice) const {
  const auto& members = group_.members();
  const int world_size = group_.endpoint().size();
  std::string where = base::str("[rank ", members[group_.rank()], " of ", world_size);
  if (group_.name() != "world") where += base::str(" | ", group_.name(), " ", group_.rank());
  throw UsageError(
      base::str(where, "] ", operation_, " on \"", group_.name(), "\": ", what, "\n  ", advice));
}

net::DType CallCheck::tensor(const at::Tensor& x, const char* name) const {
  if (!x.defined())
    fail(base::str("`", name, "` is an undefined tensor."), "Pass a tensor with memory.");
  if (x.device().type() != at::kCPU)
    fail(base::str("`", name, "` is on ", x.device(), "; this engine moves host memory."),
         "Pass x.cpu(), and copy the result back.");
  if (x.layout() != at::kStrided) fail(base::str("`", name, "` is sparse."), "Pass x.to_dense().");
  const auto type = dtype_of(x.scalar_type());
  if (!type)
    fail(base::str("`", name, "` holds ", x.scalar_type(), ", which no collective carries."),
         "Convert it, or view it as a type that is carried (at::view_as_real for complex).");
  if (!x.is_contiguous())
    fail(base::str("`", name, "` of shape ", x.sizes(), " with strides ", x.strides(),
                   " is not contiguous."),
         "Pass x.contiguous(), and copy the result back if the call writes it.");
  if (x.numel() > 0 && x.data_ptr() == nullptr)
    fail(
        base::str("`", name, "` of shape ", x.sizes(), " has no memory: its storage was released."),
        "Gather it again before it travels.");
  return *type;
}

void CallCheck::same_type(const at::Tensor& in, const at::Tensor& out) const {
  if (in.scalar_type() != out.scalar_type())
    fail(base::str("`in` holds ", in.scalar_type(), ", `out` holds ", out.scalar_type(), "."),
         "Give both the same type: collectives do not convert.");
}

void CallCheck::reducible(const at::Tensor& x, ReduceOp op) const {
  if (x.scalar_type() == at::kBool && op == ReduceOp::sum)
    fail("a sum of booleans is no boolean.",
         "Use ReduceOp::max for `any`, ReduceOp::min for `all`, or count in int64.");
  if (op == ReduceOp::average && !at::isFloatingType(x.scalar_type()))
    fail(base::str("an average of ", x.scalar_type(), " is none of that type."),
         "Sum them and divide as you mean it, or convert to float32 before.");
}

void CallCheck::rank_in_group(int rank, const char* name) const {
  if (rank < 0 || rank >= group_.size())
    fail(base::str("`", name, "` is rank ", rank, ", but the group's ranks are 0 to ",
                   group_.size() - 1, "."),
         "Ranks are places in this group, not in the world.");
}

void CallCheck::other_rank(int rank, const char* name) const {
  rank_in_group(rank, name);
  if (rank == group_.rank())
    fail(base::str("`", name, "` is this rank itself."), "Copy the tensor: no message is needed.");
}

void CallCheck::counts(const std::vector<int64_t>& counts, const char* name, int64_t total,
                       const char* tensor_name) const {
  if (static_cast<int>(counts.size()) != group_.size())
    fail(base::str("`", name, "` has ", counts.size(), " entries for ", group_.size(), " ranks."),
         "Give one count a rank; 0 for a rank without elements.");
  if (std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; }))
    fail(base::str("`", name, "` holds a negative count."), "Counts are numbers of elements.");
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum != total)
    fail(base::str("`", name, "` adds up to ", sum, " elements, but `", tensor_name, "` has ",
                   total, "."),
         base::str("Make the counts cover `", tensor_name, "` exactly."));
}

void CallCheck::own_count(const std::vector<int64_t>& counts, int64_t numel,
                          const char* tensor_name) const {
  const int64_t own = counts[group_.rank()];
  if (own != numel)
    fail(base::str("this rank's count is ", own, " elements, but `", tensor_name, "` has ", numel,
                   "."),
         base::str("Give `", tensor_name, "` as many elements as counts[rank]."));
}

void CallCheck::divides(int64_t whole, const char* whole_name, int64_t slice,
                        const char* slice_name, const char* uneven_call) const {
  const int size = group_.size();
  if (whole == size * slice) return;
  if (whole % size != 0) {
    const int64_t padded = (whole / size + 1) * size;
    fail(base::str(whole, " elements do not divide by ", size, " ranks."),
         base::str("Pad `", whole_name, "` to ", padded, " and `", slice_name, "` to ",
                   padded / size, ", or call ", uneven_call, "."));
  }
  fail(
      base::str("`", whole_name, "` has ", whole, " elements, ", whole / size, " for each of ",
                size, " ranks, but `", slice_name, "` has ", slice, "."),
      base::str("Give `", slice_name, "` ", whole / size, " elements, or call ", uneven_call, "."));
}

void CallCheck::apart(const at::Tensor& in, const at::Tensor& out) const {
  if (overlap(in, out))
    fail("`in` and `out` overlap: a peer may read `in` while `out` is written.",
         "Pass separate memory.");
}

void CallCheck::own_part_or_apart(const at::Tensor& in, const at::Tensor& out,
                                  int64_t first) const {
  const auto* part = static_cast<const char*>(out.data_ptr()) + first * out.element_size();
  if (in.data_ptr() != part) apart(in, out);
}

net::DType CallCheck::terms(std::vector<LeafTerm>& terms, int leaves, int64_t count,
                            const at::Tensor& result, int64_t own_first) const {
  const net::DType type = tensor(result, "result");
  if (type != net::DType::f32 && type != net::DType::f64)
    fail(base::str("a sum over leaves of ", result.scalar_type(),
                   "; partial sums travel in float32."),
         "Use float32 or float64.");
  if (leaves < 1)
    fail(base::str("a sum over ", leaves, " leaves."), "Give the leaves of the step.");
  std::sort(terms.begin(), terms.end(),
            [](const LeafTerm& a, const LeafTerm& b) { return a.leaves < b.leaves; });

  std::vector<plan::LeafRange> ranges;
  for (const LeafTerm& term : terms) {
    const std::string range = base::str("[", term.leaves.lo, ", ", term.leaves.hi, ")");
    tensor(term.value, "a term");
    if (term.value.scalar_type() != result.scalar_type() || term.value.numel() != count)
      fail(base::str("the term of leaves ", range, " holds ", term.value.numel(), " elements of ",
                     term.value.scalar_type(), "; ", count, " of ", result.scalar_type(),
                     " were expected."),
           "Give all terms the shape and type of the sum.");
    const auto* own = static_cast<const char*>(term.value.data_ptr()) +
                      own_first * static_cast<int64_t>(term.value.element_size());
    if (overlap(term.value, result) && own != result.data_ptr())
      fail(base::str("the term of leaves ", range, " overlaps the result in part."),
           "Let the result be one term's tensor, or memory of its own.");
    ranges.push_back(term.leaves);
  }
  try {
    plan::evaluation(leaves, ranges);
  } catch (const UsageError& error) {
    const std::string what = error.what();
    fail(what.substr(0, what.find('\n')),
         base::str("Bring plan::maximal_subtrees(", leaves, ", the leaves held)."));
  }
  return type;
}

}  // namespace lockstep::detail
