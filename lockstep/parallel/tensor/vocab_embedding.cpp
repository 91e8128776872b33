#include "lockstep/parallel/tensor/vocab_embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor/detail/layer_inputs.h"
#include "lockstep/torch_inside/kept.h"

namespace lockstep::parallel {
namespace {

using detail::rows_of;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Table {
  TensorGroup group;
  std::vector<at::Tensor> weights;
  at::Tensor positions;  // undefined: none
};

at::Tensor in_grain(const at::Tensor& ids, int64_t first, int64_t rows) {
  return ids.ge(first).logical_and_(ids.lt(first + rows));
}

/// positions [S.., D] as the slices `held` of [T, S/T, D], to be added to [t, B, S/T, D].
at::Tensor position_slices(const at::Tensor& positions, const at::Tensor& ids,
                           plan::LeafRange held) {
  const int64_t T = ids.size(0), s = ids.size(2);
  if (base::planted(base::Fault::local_positions)) held = {0, held.size()};
  return positions.narrow(0, 0, T * s)
      .view({T, 1, s, positions.size(1)})
      .narrow(0, held.lo, held.size());
}

struct VocabEmbedding final : torch::autograd::Function<VocabEmbedding> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& ids,
                            const at::TensorList& /*weights*/, const at::TensorList& /*positions*/,
                            const Table& table) {
    const int first_grain = table.group.place.local.lo;
    const at::Tensor x =
        join_grains(table.group, [&](int grain) {
          const at::Tensor& weight = table.weights[grain - first_grain];
          const int64_t rows = weight.size(0), first = grain * rows;
          const at::Tensor mine = in_grain(ids, first, rows);
          const at::Tensor own = at::where(mine, ids - first, 0);
          return at::embedding(weight, own).masked_fill_(mine.logical_not().unsqueeze(-1), 0);
        }).wait();
    if (table.positions.defined()) {
      x.add_(position_slices(table.positions, ids, table.group.slices()));
    }
    ctx->save_for_backward({ids});
    torch_inside::keep(*ctx, table);
    return x;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Table& table = torch_inside::kept<Table>(*ctx);
    const TensorGroup& group = table.group;
    const at::Tensor ids = ctx->get_saved_variables()[0];
    const at::Tensor own = gradients[0].contiguous();
    Pending whole = whole_of(group, own);

    variable_list result{at::Tensor()};  // ids
    at::Tensor d_positions;
    if (table.positions.defined() && table.positions.requires_grad()) {
      d_positions = position_gradient(group, own, table.positions);
    }
    const at::Tensor dx = rows_of(whole.wait());
    const at::Tensor tokens = ids.view({-1});
    for (size_t i = 0; i < table.weights.size(); ++i) {
      const int64_t rows = table.weights[i].size(0);
      const int64_t first = (group.place.local.lo + static_cast<int64_t>(i)) * rows;
      const at::Tensor mine = at::nonzero(in_grain(tokens, first, rows)).view({-1});
      result.push_back(at::embedding_dense_backward(
          dx.index_select(0, mine), tokens.index_select(0, mine) - first, rows,
          /*padding_idx=*/-1, /*scale_grad_by_freq=*/false));
    }
    if (table.positions.defined()) result.push_back(d_positions);
    result.emplace_back();  // the table
    return result;
  }

  /// A position is in one token slice, so slices are put side by side, not added.
  static at::Tensor position_gradient(const TensorGroup& group, const at::Tensor& dx,
                                      const at::Tensor& positions) {
    const int64_t s = dx.size(2), D = dx.size(3);
    at::Tensor slices = at::empty({dx.size(0), s, D}, dx.options());
    for (int64_t i = 0; i < dx.size(0); ++i) slices.select(0, i).copy_(dx.select(0, i).sum(0));
    const at::Tensor whole = whole_of(group, slices).wait().view({-1, D});
    at::Tensor gradient = at::zeros(positions.sizes(), dx.options());
    gradient.narrow(0, 0, whole.size(0)).copy_(whole);
    return gradient;
  }
};

}  // namespace

int64_t vocab_rows(int64_t vocab, int grains) { return (vocab + grains - 1) / grains; }

at::Tensor vocab_embedding(const TensorGroup& group, const at::Tensor& ids,
                           const std::vector<at::Tensor>& weights, const at::Tensor& positions,
                           int64_t vocab) {
  if (ids.numel() > 0) {
    const int64_t least = ids.min().item<int64_t>(), most = ids.max().item<int64_t>();
    if (least < 0 || most >= vocab) {
      throw UsageError(base::str("token id ", least < 0 ? least : most,
                                 " is not in a vocabulary of ", vocab,
                                 ".\n  Train with the tokenizer that wrote the data."));
    }
  }
  std::vector<at::Tensor> added;
  if (positions.defined()) added.push_back(positions);
  return VocabEmbedding::apply(ids, at::TensorList(weights), at::TensorList(added),
                               Table{group, weights, positions});
}

}  // namespace lockstep::parallel
