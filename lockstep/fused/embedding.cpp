#include "lockstep/fused/embedding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/fused/detail/tensors.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/torch_inside/first_touch.h"
#include "lockstep/torch_inside/own_operator.h"

namespace lockstep::fused {
namespace {

using detail::data;
using detail::data_or_null;
using detail::data_to_fill;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Embedding final : torch::autograd::Function<Embedding> {
  enum Input { kIds, kTable, kPositions };

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& ids, const at::Tensor& table,
                            at::TensorList added) {
    const at::Tensor positions = added.empty() ? at::Tensor() : added[0];
    torch_inside::OwnOperator record("lockstep::embedding", {ids, table});
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({ids});
    ctx->saved_data["table_rows"] = table.size(0);
    ctx->saved_data["positions"] = positions.defined() ? positions.size(0) : int64_t{-1};
    torch_inside::touch_for_reading({table, positions});
    std::vector<int64_t> shape = ids.sizes().vec();
    shape.push_back(table.size(1));
    const at::Tensor x = at::empty(shape, table.options());
    kernels::embedding(data_to_fill(x), ids.data_ptr<int64_t>(), ids.numel(), data(table),
                       data_or_null(positions), ids.size(-1), table.size(1));
    record.gives({x});
    return x;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const int64_t positions = ctx->saved_data["positions"].toInt();
    at::Tensor d_table, d_positions;
    if (gradients[0].defined()) {
      const at::Tensor ids = ctx->get_saved_variables()[0];
      const at::Tensor dx = gradients[0].contiguous();
      const int64_t width = dx.size(-1), sequence = ids.size(-1);
      if (ctx->needs_input_grad(kTable)) {
        d_table = at::zeros({ctx->saved_data["table_rows"].toInt(), width}, dx.options());
        kernels::embedding_backward(data_to_fill(d_table), ids.data_ptr<int64_t>(), ids.numel(),
                                    data(dx), width);
      }
      if (positions >= 0 && ctx->needs_input_grad(kPositions)) {
        d_positions = at::empty({positions, width}, dx.options());
        const int64_t samples = sequence == 0 ? 0 : ids.numel() / sequence;
        kernels::positions_backward(data_to_fill(d_positions), data(dx), samples, sequence, width);
        d_positions.narrow(0, sequence, positions - sequence).zero_();
      }
    }
    variable_list result{at::Tensor(), d_table};
    if (positions >= 0) result.push_back(d_positions);
    return result;
  }
};

void check(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions) {
  const int64_t rows = table.size(0), width = table.size(1);
  if (ids.scalar_type() != at::kLong) throw UsageError("embedding: ids are not int64.");
  const int64_t* const first = ids.data_ptr<int64_t>();
  for (const int64_t* id = first; id != first + ids.numel(); ++id) {
    if (*id < 0 || *id >= rows) {
      throw UsageError(base::str("token id ", *id, " is not in a vocabulary of ", rows,
                                 ".\n  Train with the tokenizer that wrote the data."));
    }
  }
  if (positions.defined() && (positions.size(0) < ids.size(-1) || positions.size(1) != width)) {
    throw UsageError(base::str("embedding: ", positions.size(0), " positions of width ",
                               positions.size(1), " for a sequence of ", ids.size(-1), " of width ",
                               width, "."));
  }
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions) {
  const at::Tensor rows = ids.contiguous();
  check(rows, table, positions);
  variable_list added;
  if (positions.defined()) added.push_back(detail::floats("embedding", positions));
  return Embedding::apply(rows, detail::floats("embedding", table), at::TensorList(added));
}

}  // namespace lockstep::fused
