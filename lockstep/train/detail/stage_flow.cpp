#include "lockstep/train/detail/stage_flow.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/planted_fault.h"

namespace lockstep::detail {
namespace {

template <class Map>
auto take(Map& from, const typename Map::key_type& key, const char* what) {
  const auto found = from.find(key);
  LOCKSTEP_ASSERT(found != from.end(), what);
  auto value = std::move(found->second);
  from.erase(found);
  return value;
}

}  // namespace

StageFlow::StageFlow(const plan::PipelineSchedule& shape, int stage, StageMessages& messages,
                     std::shared_ptr<WeightQueue> queue)
    : shape_(shape), stage_(stage), messages_(messages), queue_(std::move(queue)) {
  shape_.steps.clear();
}

bool StageFlow::heads(int chunk) const { return virtual_of(chunk) + 1 == shape_.virtual_stages(); }

int StageFlow::stage_after(int chunk) const {
  if (heads(chunk)) return -1;
  const int to = shape_.stage_of(virtual_of(chunk) + 1);
  return to == stage_ ? -1 : to;
}

int StageFlow::stage_before(int chunk) const {
  if (begins(chunk)) return -1;
  const int from = shape_.stage_of(virtual_of(chunk) - 1);
  return from == stage_ ? -1 : from;
}

at::Tensor StageFlow::forward(const plan::Step& step, const Compute& compute) {
  const Key key = key_of(step);
  Flight flight;
  if (!begins(step.chunk)) {
    flight.input = take(inputs_, key, "an input comes before its forward").requires_grad_();
  }
  at::Tensor result = compute(flight.input);
  flight.end.emplace_back(result);
  const bool heads_here = heads(step.chunk);
  if (!heads_here && stage_after(step.chunk) < 0) {
    // The next piece of the model is here, too.
    inputs_[{shape_.chunk_of(virtual_of(step.chunk) + 1), step.leaf, step.micro}] = result.detach();
  } else if (!heads_here) {
    flight.result = result.detach();
  } else {
    flight.result = result;
  }
  flights_.insert_or_assign(key, std::move(flight));
  most_in_flight_ = std::max(most_in_flight_, static_cast<int>(flights_.size()));
  return heads_here ? result : at::Tensor();
}

void StageFlow::backward(const plan::Step& step, double seed) {
  const Key key = key_of(step);
  Flight flight = take(flights_, key, "a backward comes after its forward");
  if (queue_) queue_->entries.clear();
  const at::Tensor gradient = heads(step.chunk)
                                  ? at::full_like(flight.result.detach(), seed)
                                  : take(gradients_, key, "a gradient comes before its backward");
  flight.result = at::Tensor();
  flight.end.front().backward(gradient);
  if (queue_) deferred_[key] = std::move(queue_->entries);
  if (begins(step.chunk)) return;
  at::Tensor of_input = flight.input.grad();
  // The chunk did not use its input.
  if (!of_input.defined()) of_input = at::zeros_like(flight.input.detach());
  if (base::planted(base::Fault::lost_input_gradient)) of_input.zero_();
  if (stage_before(step.chunk) >= 0) {
    to_send_[key] = of_input;
  } else {
    gradients_[{shape_.chunk_of(virtual_of(step.chunk) - 1), step.leaf, step.micro}] = of_input;
  }
}

std::vector<DeferredGradient> StageFlow::take_deferred(const plan::Step& step) {
  std::vector<DeferredGradient> deferred =
      take(deferred_, key_of(step), "weights come after their backward");
  if (base::planted(base::Fault::dropped_weight_gradient)) deferred.pop_back();
  if (base::planted(base::Fault::doubled_weight_gradient)) {
    const DeferredGradient last = deferred.back();
    deferred.back().compute = [last] { return last.compute() * 2; };
  }
  return deferred;
}

void StageFlow::send_forward(const plan::Step& step) {
  Flight& flight = flights_.at(key_of(step));
  // As if its memory had been taken for something else while it was on its way.
  const bool reused = base::planted(base::Fault::reused_send_buffer);
  messages_.send(StageMessages::Kind::activation, stage_, stage_after(step.chunk),
                 reused ? at::full_like(flight.result, 7) : flight.result);
  flight.result = at::Tensor();
}

void StageFlow::recv_forward(const plan::Step& step) {
  if (base::planted(base::Fault::swapped_micro_batches) && last_input_.defined()) {
    inputs_[key_of(step)] = last_input_.clone();
    last_input_ = messages_.recv(StageMessages::Kind::activation, stage_before(step.chunk), stage_);
    return;
  }
  inputs_[key_of(step)] =
      messages_.recv(StageMessages::Kind::activation, stage_before(step.chunk), stage_);
  if (base::planted(base::Fault::swapped_micro_batches))
    last_input_ = inputs_[key_of(step)].clone();
}

void StageFlow::send_backward(const plan::Step& step) {
  messages_.send(StageMessages::Kind::gradient, stage_, stage_before(step.chunk),
                 take(to_send_, key_of(step), "a gradient is sent after its backward"));
}

void StageFlow::recv_backward(const plan::Step& step) {
  gradients_[key_of(step)] =
      messages_.recv(StageMessages::Kind::gradient, stage_after(step.chunk), stage_);
}

at::Tensor StageFlow::pass(
    const std::function<at::Tensor(int chunk, const at::Tensor& input)>& compute) {
  using Kind = StageMessages::Kind;
  at::Tensor losses;
  at::Tensor turned;  // what the chunk before gave on this stage
  for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
    at::Tensor input;
    if (stage_before(chunk) >= 0) {
      input = messages_.recv(Kind::activation, stage_before(chunk), stage_);
    } else if (!begins(chunk)) {
      input = turned;
    }
    at::Tensor result = compute(chunk, input);
    if (heads(chunk)) {
      losses = std::move(result);
    } else if (stage_after(chunk) >= 0) {
      messages_.send(Kind::activation, stage_, stage_after(chunk), result);
    } else {
      turned = std::move(result);
    }
  }
  return losses;
}

void StageFlow::finish() {
  messages_.flush();
  LOCKSTEP_ASSERT(flights_.empty() && inputs_.empty() && gradients_.empty() && to_send_.empty() &&
                      deferred_.empty(),
                  "a step ends with an empty pipeline");
}

void StageFlow::clear() {
  inputs_.clear();
  gradients_.clear();
  to_send_.clear();
  flights_.clear();
  deferred_.clear();
}

}  // namespace lockstep::detail
