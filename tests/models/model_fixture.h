/// What the tests of models share: a context without groups, and weights that need no generator.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <string>

#include "lockstep/base/counter_random.h"
#include "lockstep/comm/rank_context.h"
#include "lockstep/models/language_model.h"

namespace lockstep::models {

inline plan::Param param_of(const LanguageModel& model, const std::string& path,
                            const at::Tensor& tensor) {
  plan::Param param;
  param.name = path;
  param.shape = tensor.sizes().vec();
  param.slice = model.slice_of(path);
  return param;
}

/// Weights uniform in [-spread, spread], by logical name and index; gains around 1; padding 0.
inline void fill(LanguageModel& model, uint64_t seed, double spread = 0.3) {
  for (auto& item : model.named_parameters()) {
    const plan::Param param = param_of(model, item.key(), item.value());
    const base::RandomKey key = base::RandomKey(seed).with(plan::logical_name(param));
    const bool gain = model.init_of(item.key()).kind == plan::Init::Kind::ones;
    float* const values = item.value().data_ptr<float>();
    for (const plan::LogicalRun& run : plan::logical_runs(param, 0, item.value().numel())) {
      for (int64_t i = run.lo; i < run.hi; ++i) {
        const auto counter = static_cast<uint64_t>(run.first + i - run.lo);
        const double draw = (2 * key.uniform(counter) - 1) * spread;
        values[i] = run.first < 0 ? 0 : static_cast<float>(gain ? 1 + draw : draw);
      }
    }
  }
}

/// The gradients of the logical parameters, put together from the tensors' that the model has.
inline std::map<std::string, at::Tensor> logical_gradients(const LanguageModel& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model.named_parameters()) {
    const plan::Param param = param_of(model, item.key(), item.value());
    at::Tensor& whole = all[plan::logical_name(param)];
    if (!whole.defined()) whole = torch::zeros(plan::logical_shape(param));
    const at::Tensor gradient = item.value().grad().contiguous();
    for (const plan::LogicalRun& run : plan::logical_runs(param, 0, gradient.numel())) {
      if (run.first < 0) continue;
      std::copy_n(gradient.data_ptr<float>() + run.lo, run.size(),
                  whole.data_ptr<float>() + run.first);
    }
  }
  return all;
}

/// The head takes the embedding's storage, as the parameter store makes it.
inline void apply_ties(LanguageModel& model) {
  auto parameters = model.named_parameters();
  for (const plan::Tie& tie : model.ties()) {
    parameters[tie.use].set_data(parameters[tie.of].detach());
  }
}

inline at::Tensor tokens(uint64_t seed, int64_t samples, int64_t length, int64_t vocab) {
  const base::RandomKey key(seed);
  at::Tensor ids = torch::empty({samples, length}, at::kLong);
  int64_t* const values = ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    values[i] =
        static_cast<int64_t>(key.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab)));
  }
  return ids;
}

inline RankContext context_of(int64_t step = 0, int64_t first_sample = 0, bool training = true) {
  RankContext context;
  context.seed = 1337;
  context.training = training;
  context.step = step;
  context.first_sample = first_sample;
  return context;
}

/// The largest difference of `got` from `exact`, as a share of the largest element of `exact`.
inline double relative_error(const at::Tensor& got, const at::Tensor& exact) {
  const double largest = exact.detach().abs().max().item<double>();
  const double difference =
      (got.detach().to(at::kDouble) - exact.detach().to(at::kDouble)).abs().max().item<double>();
  return difference / largest;
}

}  // namespace lockstep::models
