/// What flows through a stage of a pipeline: inputs and results of its chunks between their forward
/// and their backward, gradients between backward and weight, messages to its neighbours.
///
/// A result is dropped when it is sent: only the end of its graph stays (torch_inside/graph_end.h).
///
/// Holds   for each micro-batch in flight: the input, and what the chunk's graph saved
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "lockstep/comm/weight_queue.h"
#include "lockstep/parallel/pipeline/stage_messages.h"
#include "lockstep/plan/step_program.h"
#include "lockstep/torch_inside/graph_end.h"

namespace lockstep::detail {

class StageFlow {
 public:
  /// `queue`: where this stage's layers leave the gradients of weights; null: the schedule does not
  /// split them off.
  StageFlow(const plan::PipelineSchedule& shape, int stage, StageMessages& messages,
            std::shared_ptr<WeightQueue> queue);

  bool heads(int chunk) const;  // the chunk ends in losses
  bool splits_weight() const { return queue_ != nullptr; }

  /// Runs `compute` on the chunk's input (undefined: the chunk begins the model). Gives the losses
  /// of a chunk that ends in them.
  using Compute = std::function<at::Tensor(const at::Tensor& input)>;
  at::Tensor forward(const plan::Step& step, const Compute& compute);
  /// The losses weigh `seed` each; other chunks go on from the gradient that has come.
  void backward(const plan::Step& step, double seed);
  /// The gradients of weights that the backward of `step` left.
  std::vector<DeferredGradient> take_deferred(const plan::Step& step);
  void send_forward(const plan::Step& step);
  void recv_forward(const plan::Step& step);
  void send_backward(const plan::Step& step);
  void recv_backward(const plan::Step& step);

  /// One forward without gradients through all chunks of this stage, from the stage before to the
  /// next; gives losses on the stage that has them.
  at::Tensor pass(const std::function<at::Tensor(int chunk, const at::Tensor& input)>& compute);

  /// At the end of a step: everything has gone out and nothing is left.
  void finish();
  void clear();
  /// Micro-batches of a chunk between forward and the end of backward, at most.
  int most_in_flight() const { return most_in_flight_; }
  void reset_most_in_flight() { most_in_flight_ = 0; }

 private:
  using Key = std::tuple<int, int, int>;  // chunk, leaf, micro
  static Key key_of(const plan::Step& step) { return {step.chunk, step.leaf, step.micro}; }
  int virtual_of(int chunk) const { return shape_.virtual_stage(stage_, chunk); }
  int stage_after(int chunk) const;   // -1: this stage's next chunk takes it, or it is the last
  int stage_before(int chunk) const;  // the same
  bool begins(int chunk) const { return virtual_of(chunk) == 0; }

  struct Flight {
    at::Tensor input;
    at::Tensor result;  // until it is sent
    std::vector<torch_inside::GraphEnd> end;
  };

  plan::PipelineSchedule shape_;  // its steps are not looked at
  int stage_;
  StageMessages& messages_;
  std::shared_ptr<WeightQueue> queue_;
  std::map<Key, at::Tensor> inputs_;     // that have come
  std::map<Key, at::Tensor> gradients_;  // of results
  std::map<Key, at::Tensor> to_send_;    // gradients of inputs
  std::map<Key, Flight> flights_;
  std::map<Key, std::vector<DeferredGradient>> deferred_;
  int most_in_flight_ = 0;
};

}  // namespace lockstep::detail
