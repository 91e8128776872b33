#include "lockstep/train/step_runner.h"

#include "lockstep/base/assert.h"
#include "lockstep/train/batch_tensors.h"

namespace lockstep {
namespace {

using plan::StepOp;
using torch_inside::Phase;

}  // namespace

StepRunner::StepRunner(const plan::StepInputs& inputs, state::ParamStore& params,
                       state::GradStore& grads, ProcessGroup& group, ProcessGroup* shard)
    : step_{.steps = plan::data_parallel_program(inputs, group.rank()).steps, .done = {}},
      batch_(inputs.batch),
      loss_terms_(plan::leaf_terms(inputs.leaves, group.rank())),
      params_(params),
      grads_(grads),
      group_(group),
      norm_(params.table(), params.layout(), shard),
      bucket_ready_(params.buckets().buckets.size()),
      leaf_losses_(static_cast<size_t>(inputs.batch.grains)) {
  for (const plan::UnitStep& step : plan::forward_units(params.layout(), false)) {
    forward_.steps.push_back(plan::step_of(step));
  }
  grads_.on_bucket_ready([this](int bucket) {
    bucket_ready_[static_cast<size_t>(bucket)] = true;
    advance_gradients();
  });
  if (params_.units() != nullptr) {
    params_.units()->on_touch([this](int unit) {
      const PhaseSpan span(clock_, Phase::gather_wait);
      advance_units(unit);
      if (!params_.units()->released(unit)) params_.units()->await(unit);
    });
  }
}

StepRunner::~StepRunner() {
  grads_.on_bucket_ready({});
  if (params_.units() != nullptr) params_.units()->on_touch({});
}

StepRunner::Lane StepRunner::lane_of(StepOp op) {
  switch (op) {
    case StepOp::gather:
    case StepOp::touch:
    case StepOp::release:
      return Lane::units;
    case StepOp::fold_use:
    case StepOp::fold:
    case StepOp::reduce:
    case StepOp::settle:
      return Lane::gradients;
    default:
      return Lane::none;
  }
}

StepResult StepRunner::run(const StepCompute& compute, double seed) {
  entering_ = compute.entering;
  begin();
  while (const std::optional<plan::Round> round = next_forward()) {
    backward(compute.forward(round->leaf, round->micro), seed);
  }
  const StepResult result = finish(compute.update);
  entering_ = {};
  return result;
}

void StepRunner::begin() {
  executed_.clear();
  reductions_.clear();
  forward_span_.reset();
  program_ = &step_;
  step_.done.assign(step_.steps.size(), false);
  std::fill(leaf_losses_.begin(), leaf_losses_.end(), 0.0);
  std::fill(bucket_ready_.begin(), bucket_ready_.end(), false);
  cursor_ = 0;
}

void StepRunner::enter(const plan::Step& step) {
  if (entering_) entering_(step);
  if (lane_of(step.op) == Lane::none) executed_.push_back(step);
}

std::optional<plan::Round> StepRunner::next_forward() {
  while (cursor_ < step_.steps.size()) {
    const plan::Step step = step_.steps[cursor_];
    if (step.op == StepOp::across || step.op == StepOp::loss) return std::nullopt;
    if (step_.done[cursor_++]) continue;
    enter(step);
    if (step.op == StepOp::forward) {
      forward_span_.emplace(clock_, Phase::forward);
      begin_window();
      return plan::Round{step.leaf, step.micro};
    }
    // A phantom round, whose operations are done in turn, or what a window left.
    if (step.op != StepOp::phantom) execute(step);
  }
  return std::nullopt;
}

void StepRunner::backward(const at::Tensor& losses, double seed) {
  end_window();
  forward_span_.reset();
  const plan::Step step = step_.steps[cursor_++];
  LOCKSTEP_ASSERT(step.op == StepOp::backward, "a forward is followed by its backward");
  enter(step);
  leaf_losses_[static_cast<size_t>(step.leaf)] += sum_in_order(losses);
  const PhaseSpan span(clock_, Phase::backward);
  if (step.micro == 0) std::fill(bucket_ready_.begin(), bucket_ready_.end(), false);
  grads_.begin_backward(step.leaf, step.micro);
  begin_window();
  losses.backward(at::full_like(losses, seed));
  grads_.end_backward();
  end_window();
}

StepResult StepRunner::finish(const std::function<void(double grad_norm)>& update) {
  StepResult result;
  std::vector<Work> published;
  for (; cursor_ < step_.steps.size(); ++cursor_) {
    const plan::Step& step = step_.steps[cursor_];
    enter(step);
    switch (step.op) {
      case StepOp::across:
        await_reductions();
        reductions_.push_back(grads_.across(step.bucket));
        break;
      case StepOp::loss:
        // Queued behind the reductions: it waits for what backward did not hide.
        result.loss_sum = exchange_losses();
        break;
      case StepOp::norm:
        await_reductions();
        result.grad_norm = gradient_norm();
        break;
      case StepOp::update: {
        const PhaseSpan span(clock_, Phase::update);
        update(result.grad_norm);
        break;
      }
      case StepOp::publish: {
        const PhaseSpan span(clock_, Phase::gather_wait);
        published.push_back(params_.publish(step.bucket));
        break;
      }
      default:
        LOCKSTEP_ASSERT(false, "the micro-batches of a step come before its end");
    }
  }
  const PhaseSpan span(clock_, Phase::gather_wait);
  for (Work& work : published) work.wait();
  return result;
}

void StepRunner::run_forward(const std::function<void()>& forward) {
  std::vector<plan::Step> of_the_step = std::move(executed_);
  program_ = &forward_;
  forward_.done.assign(forward_.steps.size(), false);
  cursor_ = 0;
  begin_window();
  if (forward) forward();
  end_window();
  program_ = &step_;
  executed_ = std::move(of_the_step);
}

/// The operations behind the cursor, up to the next that is in no lane, belong to what now runs.
void StepRunner::begin_window() {
  window_end_ = cursor_;
  while (window_end_ < program_->steps.size() &&
         lane_of(program_->steps[window_end_].op) != Lane::none) {
    ++window_end_;
  }
  if (params_.units() != nullptr) advance_units(-1);
}

/// What the computation did not bring about, in the program's order.
void StepRunner::end_window() {
  for (; cursor_ < window_end_; ++cursor_) {
    if (!program_->done[cursor_]) execute(program_->steps[cursor_]);
    program_->done[cursor_] = true;
  }
}

/// Starts the operations on units that need not wait for a touch; those that wait for the touch of
/// `touched`, too. A unit that is passed over was not used this time.
void StepRunner::advance_units(int touched) {
  const auto touches = [&](size_t i) {
    return !program_->done[i] && program_->steps[i].op == StepOp::touch &&
           program_->steps[i].unit == touched;
  };
  size_t last_touch = cursor_;
  while (last_touch < window_end_ && !touches(last_touch)) ++last_touch;
  if (touched >= 0 && last_touch == window_end_) return;
  for (size_t i = cursor_; i < window_end_; ++i) {
    const plan::Step& step = program_->steps[i];
    if (program_->done[i] || lane_of(step.op) != Lane::units) continue;
    if (step.op == StepOp::touch && (touched < 0 || i > last_touch)) return;
    // It was only just touched: its release stands at the end of the pass.
    if (step.op == StepOp::release && step.unit == touched) return;
    program_->done[i] = true;
    execute(step);
  }
}

bool StepRunner::is_ready(const plan::Step& step) const {
  const int bucket = step.op == StepOp::fold_use
                         ? params_.buckets().slots[static_cast<size_t>(step.param)].bucket
                         : step.bucket;
  return bucket_ready_[static_cast<size_t>(bucket)];
}

/// Called from within backward.
void StepRunner::advance_gradients() {
  for (size_t i = cursor_; i < window_end_; ++i) {
    const plan::Step& step = program_->steps[i];
    if (program_->done[i] || lane_of(step.op) != Lane::gradients) continue;
    if (!is_ready(step)) return;
    program_->done[i] = true;
    execute(step);
  }
}

void StepRunner::execute(const plan::Step& step) {
  executed_.push_back(step);
  const bool waits = step.op == StepOp::reduce || step.op == StepOp::settle;
  const PhaseSpan span(clock_, lane_of(step.op) == Lane::units ? Phase::gather_wait
                               : waits                         ? Phase::reduce_wait
                                                               : Phase::fold);
  switch (step.op) {
    case StepOp::gather:
      params_.units()->gather(step.unit);
      return;
    case StepOp::touch:
      return;
    case StepOp::release:
      params_.units()->release(step.unit);
      return;
    case StepOp::fold_use:
      grads_.fold_use(step.param, step.leaf);
      return;
    case StepOp::fold:
      grads_.fold(step.bucket, step.leaf);
      return;
    case StepOp::reduce: {
      Work work =
          step.node.size() > 0 ? grads_.reduce(step.bucket, step.node) : grads_.reduce(step.bucket);
      reductions_.push_back(std::move(work));
      return;
    }
    case StepOp::settle:
      grads_.settle(step.bucket, step.node);
      return;
    default:
      LOCKSTEP_ASSERT(false, "other operations are the loop's");
  }
}

void StepRunner::await_reductions() {
  const PhaseSpan span(clock_, Phase::reduce_wait);
  for (Work& work : reductions_) work.wait();
  reductions_.clear();
}

double StepRunner::exchange_losses() {
  const PhaseSpan span(clock_, Phase::reduce_wait);
  std::vector<LeafTerm> terms;
  for (const plan::LeafRange& range : loss_terms_) {
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
  return norm_.euclidean([this](const plan::Piece& piece) { return grads_.gradient(piece); });
}

}  // namespace lockstep
