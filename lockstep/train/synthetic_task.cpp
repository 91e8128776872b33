#include "lockstep/train/synthetic_task.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr int64_t kWidth = plan::SyntheticCompute::kWidth;

void sleep_for(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

struct Times : torch::CustomClassHolder {
  plan::SyntheticCompute compute;
  std::shared_ptr<WeightQueue> queue;
  at::Tensor parameter;  // the leaf, also where it is not in the graph
};

/// x times a weight, with the times of a layer.
struct SleepingLayer : torch::autograd::Function<SleepingLayer> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const c10::intrusive_ptr<Times>& times) {
    context->save_for_backward({x, weight});
    context->saved_data["times"] = c10::IValue::make_capsule(times);
    sleep_for(times->compute.forward);
    return at::mul(x, weight);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto times =
        c10::static_intrusive_pointer_cast<Times>(context->saved_data["times"].toCapsule());
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor x = saved[0];
    const at::Tensor gradient = gradients[0];
    sleep_for(times->compute.backward);
    const auto of_weight = [x, gradient, times] {
      sleep_for(times->compute.weight);
      return at::mul(gradient, x).sum(0);
    };
    at::Tensor now;
    if (times->queue) {
      times->queue->entries.push_back({times->parameter, of_weight});
    } else {
      now = of_weight();
    }
    return {at::mul(gradient, saved[1]), now, at::Tensor()};
  }
};

}  // namespace

SyntheticTask::SyntheticTask(const plan::SyntheticCompute& compute, int64_t global_batch,
                             const std::vector<plan::ModelChunk>& pieces)
    : compute_(compute),
      global_batch_(global_batch),
      pieces_(pieces),
      module_(std::make_shared<torch::nn::Module>()) {
  for (const plan::ModelChunk& piece : pieces_) {
    weights_.push_back(
        module_->register_parameter(base::str("piece_", piece.first_layer), at::ones({kWidth})));
  }
}

at::Tensor SyntheticTask::run_chunk(int chunk, const at::Tensor& input, const Samples& samples,
                                    const RankContext& context) {
  const auto times = c10::make_intrusive<Times>();
  times->compute = compute_;
  times->queue = context.weight_queue;
  times->parameter = weights_[static_cast<size_t>(chunk)];
  const at::Tensor x = input.defined() ? input : at::ones({samples.count, kWidth});
  const at::Tensor y = SleepingLayer::apply(
      x.requires_grad() ? x : x.detach().requires_grad_(),
      context.weight_queue ? times->parameter.detach() : times->parameter, times);
  return pieces_[static_cast<size_t>(chunk)].heads ? y.mean(1) : y;
}

int SyntheticTask::chunk_of(const std::string& path) const {
  for (size_t chunk = 0; chunk < pieces_.size(); ++chunk) {
    if (path == base::str("piece_", pieces_[chunk].first_layer)) return static_cast<int>(chunk);
  }
  return 0;
}

}  // namespace lockstep
