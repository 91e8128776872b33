#include "lockstep/train/step_runner.h"

#include <cmath>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/train/batch_tensors.h"

namespace lockstep {
namespace {

using torch_inside::Phase;

bool is_communication(plan::StepOp op) {
  return op == plan::StepOp::fold_use || op == plan::StepOp::fold || op == plan::StepOp::reduce;
}

}  // namespace

StepRunner::StepRunner(plan::StepProgram program, plan::BatchPlan batch, state::ParamStore& params,
                       state::GradStore& grads, ProcessGroup& group)
    : program_(std::move(program)),
      batch_(batch),
      params_(params),
      grads_(grads),
      group_(group),
      chunks_(plan::plan_norm_chunks(params.table())),
      bucket_ready_(params.buckets().buckets.size()),
      leaf_losses_(static_cast<size_t>(batch.grains)),
      chunk_sums_(static_cast<size_t>(chunks_.chunks)) {
  grads_.on_bucket_ready([this](int bucket) {
    bucket_ready_[static_cast<size_t>(bucket)] = true;
    advance();
  });
}

StepResult StepRunner::run(const StepCompute& compute, double seed) {
  StepResult result;
  compute_ = &compute;
  executed_.clear();
  reductions_.clear();
  std::fill(leaf_losses_.begin(), leaf_losses_.end(), 0.0);
  std::fill(bucket_ready_.begin(), bucket_ready_.end(), false);
  at::Tensor losses;  // of the micro-batch between its forward and its backward
  cursor_ = 0;

  while (cursor_ < program_.steps.size()) {
    const plan::Step step = program_.steps[cursor_++];
    if (compute.entering) compute.entering(step);
    if (!is_communication(step.op)) executed_.push_back(step);
    switch (step.op) {
      case plan::StepOp::forward: {
        const PhaseSpan span(clock_, Phase::forward);
        losses = compute.forward(step.leaf, step.micro);
        leaf_losses_[static_cast<size_t>(step.leaf)] += sum_in_order(losses);
        break;
      }
      case plan::StepOp::backward: {
        const PhaseSpan span(clock_, Phase::backward);
        if (step.micro == 0) std::fill(bucket_ready_.begin(), bucket_ready_.end(), false);
        grads_.begin_backward(step.leaf, step.micro);
        losses.backward(at::full_like(losses, seed));
        grads_.end_backward();
        losses = at::Tensor();
        break;
      }
      case plan::StepOp::fold_use:
      case plan::StepOp::fold:
      case plan::StepOp::reduce:
        execute_communication(step);
        break;
      case plan::StepOp::loss:
        // Queued behind the reductions: it waits for what backward did not hide.
        result.loss_sum = exchange_losses();
        break;
      case plan::StepOp::norm:
        await_reductions();
        result.grad_norm = gradient_norm();
        break;
      case plan::StepOp::update: {
        const PhaseSpan span(clock_, Phase::update);
        compute.update(result.grad_norm);
        break;
      }
    }
  }
  compute_ = nullptr;
  return result;
}

void StepRunner::advance() {
  // Called from within backward: the cursor stands behind it.
  while (cursor_ < program_.steps.size()) {
    const plan::Step& step = program_.steps[cursor_];
    if (!is_communication(step.op)) return;
    const int bucket = step.op == plan::StepOp::fold_use
                           ? params_.buckets().slots[static_cast<size_t>(step.param)].bucket
                           : step.bucket;
    if (!bucket_ready_[static_cast<size_t>(bucket)]) return;
    ++cursor_;
    execute_communication(step);
  }
}

void StepRunner::execute_communication(const plan::Step& step) {
  executed_.push_back(step);
  const PhaseSpan span(clock_, step.op == plan::StepOp::reduce ? Phase::reduce_wait : Phase::fold);
  if (step.op == plan::StepOp::fold_use) grads_.fold_use(step.param, step.leaf);
  if (step.op == plan::StepOp::fold) grads_.fold(step.bucket, step.leaf);
  if (step.op == plan::StepOp::reduce) reductions_.push_back(grads_.reduce(step.bucket));
}

void StepRunner::await_reductions() {
  const PhaseSpan span(clock_, Phase::reduce_wait);
  for (Work& work : reductions_) work.wait();
}

double StepRunner::exchange_losses() {
  const PhaseSpan span(clock_, Phase::reduce_wait);
  std::vector<LeafTerm> terms;
  for (const plan::LeafRange& range : grads_.terms()) {
    const double sum =
        plan::tree_sum(leaf_losses_.data() + range.lo, static_cast<int64_t>(range.size()));
    terms.push_back({range, at::full({1}, sum, at::kDouble)});
  }
  at::Tensor total = at::zeros({1}, at::kDouble);
  group_.all_reduce(std::move(terms), batch_.grains, total).wait();
  return total.item<double>();
}

double StepRunner::gradient_norm() {
  const PhaseSpan span(clock_, Phase::norm);
  const plan::ParamTable& table = params_.table();
  for (size_t p = 0; p < table.params.size(); ++p) {
    if (chunks_.first_chunk[p] < 0) continue;
    kernels::chunk_square_sums(grads_.gradient(static_cast<int>(p)), table.params[p].numel,
                               chunk_sums_.data() + chunks_.first_chunk[p]);
  }
  return std::sqrt(plan::tree_sum(chunk_sums_.data(), chunks_.chunks));
}

}  // namespace lockstep
