#include "lockstep/train/step_runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lockstep/base/assert.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/train/batch_tensors.h"

namespace lockstep {
namespace {

using base::Fault;
using base::planted;
using plan::StepOp;
using torch_inside::Phase;

detail::ShardNorm norm_of(const state::ParamStore& params, const StepGroups& groups) {
  if (groups.parts != nullptr) return {*groups.parts, *groups.model};
  return {params.table(), params.layout(), groups.shard};
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Adds an operation and its time to a list when it ends.
class Timer {
 public:
  Timer(std::vector<TimedStep>& list, const plan::Step& step) : list_(list), place_(list.size()) {
    list_.push_back({.step = step, .start = now()});
  }
  ~Timer() { list_[place_].seconds = now() - list_[place_].start; }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::vector<TimedStep>& list_;
  size_t place_;
};

}  // namespace

StepRunner::StepRunner(const plan::StepInputs& inputs, state::ParamStore& params,
                       state::GradStore& grads, const StepGroups& groups)
    : step_{.steps = plan::step_program(inputs, groups.dp.rank()).steps, .done = {}},
      leaves_(inputs.leaves),
      contexts_(inputs.leaves.context_of(groups.dp.rank())),
      loss_terms_(groups.has_losses ? inputs.leaves.terms_of(groups.dp.rank())
                                    : std::vector<plan::LeafRange>()),
      params_(params),
      grads_(grads),
      groups_(groups),
      norm_(norm_of(params, groups)),
      bucket_ready_(params.buckets().buckets.size()),
      leaf_losses_(static_cast<size_t>(inputs.leaves.sum_leaves())) {
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
  begin();
  this->compute(compute, seed);
  const StepResult result = finish(compute);
  entering_ = {};
  return result;
}

void StepRunner::compute(const StepCompute& compute, double seed) {
  entering_ = compute.entering;
  if (groups_.flow != nullptr) {
    run_stage(compute, seed);
  } else {
    while (const std::optional<plan::Round> round = next_forward()) {
      backward(compute.forward(step_.steps[cursor_ - 1], {}), seed);
    }
  }
}

/// The operations of a stage, each in its turn.
void StepRunner::run_stage(const StepCompute& compute, double seed) {
  for (; cursor_ < step_.steps.size(); ++cursor_) {
    const plan::Step& step = step_.steps[cursor_];
    if (step.op == StepOp::across || step.op == StepOp::loss) break;
    enter(step);
    run_stage_step(step, compute, seed);
  }
  const PhaseSpan span(clock_, Phase::pipeline_wait);
  groups_.flow->finish();
}

void StepRunner::run_stage_step(const plan::Step& step, const StepCompute& compute, double seed) {
  detail::StageFlow& flow = *groups_.flow;
  const auto pass_of = [&] {
    return state::BackwardPass{.leaf = step.leaf,
                               .fresh = step.micro == 0,
                               .clear = step.micro == 0,
                               .last = false,
                               .chunk = step.chunk};
  };
  if (lane_of(step.op) != Lane::none) {
    execute(step);
    return;
  }
  const Timer timer(timed_, step);
  switch (step.op) {
    case StepOp::forward: {
      const PhaseSpan span(clock_, Phase::forward);
      const at::Tensor losses =
          flow.forward(step, [&](const at::Tensor& input) { return compute.forward(step, input); });
      if (losses.defined()) add_losses(step.leaf, losses.detach());
      return;
    }
    case StepOp::backward: {
      const PhaseSpan span(clock_, Phase::backward);
      if (planted(Fault::wrong_divisor)) seed *= 2;
      if (planted(Fault::dropped_micro_batch) && cursor_ == last_backward()) seed = 0;
      grads_.begin_backward(pass_of());
      flow.backward(step, seed);
      grads_.end_backward();
      return;
    }
    case StepOp::weight: {
      const PhaseSpan span(clock_, Phase::backward);
      for (const DeferredGradient& deferred : flow.take_deferred(step)) {
        grads_.add_deferred(deferred.weight, step.leaf, step.micro, deferred.compute());
      }
      return;
    }
    case StepOp::complete:
      grads_.complete(step.chunk, step.leaf);
      return;
    case StepOp::tie: {
      const PhaseSpan span(clock_, Phase::reduce_wait);
      grads_.tie(step.param, step.leaf);
      return;
    }
    default:
      break;
  }
  const PhaseSpan span(clock_, Phase::pipeline_wait);
  switch (step.op) {
    case StepOp::send_forward:
      return flow.send_forward(step);
    case StepOp::recv_forward:
      return flow.recv_forward(step);
    case StepOp::send_backward:
      return flow.send_backward(step);
    case StepOp::recv_backward:
      return flow.recv_backward(step);
    default:
      LOCKSTEP_ASSERT(false, "a stage computes, and hands on");
  }
}

void StepRunner::begin() {
  executed_.clear();
  timed_.clear();
  if (groups_.flow != nullptr) groups_.flow->clear();
  reductions_.clear();
  forward_span_.reset();
  program_ = &step_;
  step_.done.assign(step_.steps.size(), false);
  std::fill(leaf_losses_.begin(), leaf_losses_.end(), 0.0);
  std::fill(bucket_ready_.begin(), bucket_ready_.end(), false);
  cursor_ = 0;
}

/// The place of the last backward in the program.
size_t StepRunner::last_backward() const {
  size_t place = step_.steps.size() - 1;
  while (place > 0 && step_.steps[place].op != StepOp::backward) --place;
  return place;
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
      timed_.push_back({.step = step, .start = now()});
      forward_place_ = timed_.size() - 1;
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
  timed_[forward_place_].seconds = now() - timed_[forward_place_].start;
  const plan::Step step = step_.steps[cursor_++];
  LOCKSTEP_ASSERT(step.op == StepOp::backward, "a forward is followed by its backward");
  enter(step);
  add_losses(step.leaf, losses);
  if (planted(Fault::wrong_divisor)) seed *= groups_.dp.size();
  if (planted(Fault::dropped_micro_batch) && cursor_ > last_backward()) seed = 0;
  const PhaseSpan span(clock_, Phase::backward);
  const Timer timer(timed_, step);
  if (step.micro == 0) std::fill(bucket_ready_.begin(), bucket_ready_.end(), false);
  grads_.begin_backward(step.leaf, step.micro);
  begin_window();
  losses.backward(at::full_like(losses, seed));
  grads_.end_backward();
  end_window();
}

StepResult StepRunner::finish(const StepCompute& compute) {
  StepResult result;
  bool taken = false;
  std::vector<Work> published;
  for (; cursor_ < step_.steps.size(); ++cursor_) {
    const plan::Step& step = step_.steps[cursor_];
    enter(step);
    const Timer timer(timed_, step);
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
        taken = compute.take ? compute.take(result) : std::isfinite(result.grad_norm);
        break;
      case StepOp::ratios: {
        const PhaseSpan span(clock_, Phase::norm);
        if (taken) compute.ratios(result.grad_norm);
        break;
      }
      case StepOp::update: {
        const PhaseSpan span(clock_, Phase::update);
        if (taken) compute.update(result.grad_norm);
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
  if (groups_.flow != nullptr) {
    run_stage_forward(forward);
    return;
  }
  std::vector<plan::Step> of_the_step = std::move(executed_);
  std::vector<TimedStep> times = std::move(timed_);
  program_ = &forward_;
  forward_.done.assign(forward_.steps.size(), false);
  cursor_ = 0;
  begin_window();
  if (forward) forward();
  end_window();
  program_ = &step_;
  executed_ = std::move(of_the_step);
  timed_ = std::move(times);
}

/// All units are there, whatever the order of a stage's pieces.
void StepRunner::run_stage_forward(const std::function<void()>& forward) {
  state::GatheredUnits* const units = params_.units();
  const std::vector<int>& order = params_.layout().forward;
  if (units != nullptr) std::for_each(order.begin(), order.end(), [&](int u) { units->gather(u); });
  if (forward) forward();
  if (units != nullptr)
    std::for_each(order.begin(), order.end(), [&](int u) { units->release(u); });
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
    // It was only just touched, or nothing was and the pass begins: its release stands at the end.
    if (step.op == StepOp::release && (step.unit == touched || touched < 0)) return;
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
  const Timer timer(timed_, step);
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
      // Of a stage, the program says whose leaf it is; else it is the one at hand.
      Work work = step.node.size() == 0     ? grads_.reduce(step.bucket)
                  : groups_.flow != nullptr ? grads_.reduce(step.bucket, step.node, step.leaf)
                                            : grads_.reduce(step.bucket, step.node);
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

void StepRunner::add_losses(int leaf, const at::Tensor& losses) {
  const int64_t each = losses.numel() / contexts_.size();
  for (int context = contexts_.lo; context < contexts_.hi; ++context) {
    leaf_losses_[static_cast<size_t>(leaves_.sum_leaf(leaf, context))] +=
        sum_in_order(losses.reshape({-1}).narrow(0, (context - contexts_.lo) * each, each));
  }
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
  ProcessGroup& group = groups_.all != nullptr ? *groups_.all : groups_.dp;
  group.all_reduce(std::move(terms), leaves_.sum_leaves(), total).wait();
  return total.item<double>();
}

double StepRunner::gradient_norm() {
  const PhaseSpan span(clock_, Phase::norm);
  return norm_.euclidean([this](const plan::Piece& piece) { return grads_.gradient(piece); });
}

}  // namespace lockstep
