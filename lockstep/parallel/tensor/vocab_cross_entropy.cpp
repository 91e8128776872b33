#include "lockstep/parallel/tensor/vocab_cross_entropy.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor/detail/vocab_columns.h"
#include "lockstep/torch_inside/kept.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Columns : detail::VocabColumns {
  Columns(const TensorGroup& grains, int64_t vocab, int64_t of_grain)
      : VocabColumns{grains.place.local.lo, vocab, of_grain}, group(grains) {}
  TensorGroup group;
};

/// Where each row's target lies in a grain: which rows have it, and their column (0 for others).
struct TargetColumn {
  TargetColumn(const at::Tensor& targets, int64_t first, int64_t count)
      : here(targets.ge(first).logical_and_(targets.lt(first + count))),
        column(at::where(here, targets - first, 0).unsqueeze(1)) {}
  at::Tensor here;
  at::Tensor column;  // [N, 1]
};

struct VocabCrossEntropy final : torch::autograd::Function<VocabCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::TensorList& logits,
                            const at::Tensor& targets, const Columns& columns) {
    const int64_t N = targets.size(0);
    const auto options = logits[0].options().requires_grad(false);
    at::Tensor most = at::full({N}, -std::numeric_limits<float>::infinity(), options);
    for (size_t i = 0; i < logits.size(); ++i) {
      if (columns.real(i) == 0) continue;
      most = at::maximum(most, logits[i].narrow(1, 0, columns.real(i)).amax(1));
    }
    if (columns.group.tp != nullptr) columns.group.tp->all_reduce(most, ReduceOp::max).wait();

    variable_list saved;
    const int first_grain = columns.group.place.local.lo;
    const auto part = [&](int grain) {
      const auto i = static_cast<size_t>(grain - first_grain);
      const int64_t real = columns.real(i);
      const at::Tensor shifted = logits[i].narrow(1, 0, real) - most.unsqueeze(1);
      at::Tensor target = at::zeros({N}, options);
      if (real > 0) {
        const bool local = base::planted(base::Fault::local_targets);
        const TargetColumn at(targets, local ? 0 : columns.first(i), real);
        target = at::where(at.here, shifted.gather(1, at.column).squeeze(1), target);
      }
      saved.push_back(at::exp(shifted));
      return at::stack({saved.back().sum(1), target});
    };
    const bool own = base::planted(base::Fault::local_softmax);
    const at::Tensor sums =
        (own ? own_part(columns.group, part, /*joins=*/false) : sum_grains(columns.group, part))
            .wait();
    const at::Tensor ignored = targets.eq(kIgnored);
    const at::Tensor loss = (at::log(sums[0]) - sums[1]).masked_fill_(ignored, 0);
    saved.push_back(sums[0].clone());
    saved.push_back(targets);
    ctx->save_for_backward(saved);
    torch_inside::keep(*ctx, columns);
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Columns& columns = torch_inside::kept<Columns>(*ctx);
    const variable_list saved = ctx->get_saved_variables();
    const size_t grains = saved.size() - 2;
    const at::Tensor sum = saved[grains].unsqueeze(1), targets = saved[grains + 1];
    const at::Tensor ignored = targets.eq(kIgnored).unsqueeze(1);
    const at::Tensor g = gradients[0].unsqueeze(1);
    variable_list result;
    for (size_t i = 0; i < grains; ++i) {
      const int64_t real = columns.real(i);
      at::Tensor dl = saved[i] / sum;
      if (real > 0) {
        const TargetColumn at(targets, columns.first(i), real);
        dl.scatter_add_(1, at.column, at.here.to(dl.scalar_type()).neg_().unsqueeze(1));
      }
      // Not by a factor 0: that would keep a NaN.
      dl.mul_(g).masked_fill_(ignored, 0);
      if (real < columns.of_grain) {
        at::Tensor padded = at::zeros({dl.size(0), columns.of_grain}, dl.options());
        padded.narrow(1, 0, real).copy_(dl);
        dl = padded;
      }
      result.push_back(dl);
    }
    result.resize(grains + 2);  // targets, columns
    return result;
  }
};

void check_targets(const at::Tensor& targets, int64_t vocab) {
  const at::Tensor good =
      targets.ge(0).logical_and_(targets.lt(vocab)).logical_or_(targets.eq(kIgnored));
  if (good.all().item<bool>()) return;
  const int64_t bad = targets.masked_select(good.logical_not()).select(0, 0).item<int64_t>();
  throw UsageError(base::str("target ", bad, " is neither in a vocabulary of ", vocab, " nor ",
                             kIgnored, ", which marks a token that does not count.",
                             "\n  Train with the tokenizer that wrote the data."));
}

}  // namespace

at::Tensor vocab_cross_entropy(const TensorGroup& group, const std::vector<at::Tensor>& logits,
                               const at::Tensor& targets, int64_t vocab) {
  check_targets(targets, vocab);
  return VocabCrossEntropy::apply(at::TensorList(logits), targets,
                                  Columns(group, vocab, logits[0].size(1)));
}

at::Tensor whole_logits(const TensorGroup& group, const std::vector<at::Tensor>& logits,
                        int64_t vocab) {
  const at::NoGradGuard no_graph;
  // Grains first, so that a rank's own lie together.
  at::Tensor all = at::stack(logits);
  if (group.tp != nullptr) {
    const at::Tensor own = all;
    all = at::empty({group.grains(), own.size(1), own.size(2)}, own.options());
    std::vector<int64_t> counts;
    for (const plan::LeafRange run : group.place.by_rank) {
      counts.push_back(run.size() * own.size(1) * own.size(2));
    }
    group.tp->all_gather_uneven(own, all, std::move(counts)).wait();
  }
  return all.transpose(0, 1).reshape({all.size(1), -1}).narrow(1, 0, vocab);
}

}  // namespace lockstep::parallel
