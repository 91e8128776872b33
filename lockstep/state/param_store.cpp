#include "lockstep/state/param_store.h"

#include <map>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::state {
namespace {

void fill(float* values, const plan::Param& param, uint64_t seed) {
  switch (param.init.kind) {
    case plan::Init::Kind::zeros:
      std::fill_n(values, param.numel, 0.0f);
      return;
    case plan::Init::Kind::ones:
      std::fill_n(values, param.numel, 1.0f);
      return;
    case plan::Init::Kind::normal: {
      const base::RandomKey key = base::RandomKey(seed).with("init").with(param.name);
      for (int64_t i = 0; i < param.numel; ++i) {
        values[i] = static_cast<float>(param.init.std * key.normal(static_cast<uint64_t>(i)));
      }
      return;
    }
  }
}

/// The module's parameters by path. A tensor that is registered under two paths would be trained
/// as one and saved as two; only a declared tie may share.
std::map<std::string, at::Tensor> parameters_by_path(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> by_path;
  std::map<const void*, std::string> first_path;
  for (const auto& item : module.named_parameters(/*recurse=*/true)) {
    const auto [seen, is_new] = first_path.emplace(item.value().unsafeGetTensorImpl(), item.key());
    if (!is_new) {
      throw UsageError(base::str("parameters \"", seen->second, "\" and \"", item.key(),
                                 "\" are one tensor without a declared tie.\n  Give each its own "
                                 "tensor and declare plan::Tie{\"",
                                 item.key(), "\", \"", seen->second, "\"}."));
    }
    by_path.emplace(item.key(), item.value());
  }
  return by_path;
}

}  // namespace

ParamStore::ParamStore(torch::nn::Module& module, const std::vector<plan::Tie>& ties,
                       const std::function<plan::Init(const std::string&)>& init_of,
                       const ParamStoreOptions& options) {
  const auto by_path = parameters_by_path(module);
  std::vector<plan::ParamDeclaration> declared;
  for (const auto& item : module.named_parameters(/*recurse=*/true)) {
    if (item.value().scalar_type() != at::kFloat || !item.value().device().is_cpu()) {
      throw UsageError(base::str("parameter \"", item.key(), "\" is ", item.value().toString(),
                                 "; masters are float32 on the CPU. Build the model in float32."));
    }
    declared.push_back({.name = item.key(),
                        .shape = item.value().sizes().vec(),
                        .trainable = item.value().requires_grad(),
                        .init = init_of(item.key())});
  }
  table_ = plan::make_param_table(declared, ties);
  buckets_ = plan::plan_buckets(table_, options.first_bucket_bytes, options.bucket_bytes);
  flat_ = at::zeros({buckets_.numel}, at::kFloat);

  fixed_offset_.assign(table_.params.size(), -1);
  int64_t fixed_numel = 0;
  for (size_t p = 0; p < table_.params.size(); ++p) {
    if (buckets_.slots[p].bucket >= 0) continue;
    fixed_offset_[p] = fixed_numel;
    fixed_numel += table_.params[p].numel;
  }
  fixed_ = at::zeros({fixed_numel}, at::kFloat);

  uses_.resize(table_.params.size());
  for (size_t p = 0; p < table_.params.size(); ++p) {
    const plan::Param& param = table_.params[p];
    fill(master(static_cast<int>(p)), param, options.seed);
    const bool trained = fixed_offset_[p] < 0;
    const at::Tensor& home = trained ? flat_ : fixed_;
    const int64_t offset = trained ? buckets_.slots[p].offset : fixed_offset_[p];
    for (const std::string& path : param.uses) {
      at::Tensor leaf = by_path.at(path);
      // The leaf keeps its identity (hooks, module registration); only its storage moves here.
      leaf.set_data(home.narrow(0, offset, param.numel).view(param.shape));
      uses_[p].push_back(leaf);
    }
  }
}

float* ParamStore::master(int param) {
  return const_cast<float*>(static_cast<const ParamStore*>(this)->master(param));
}

const float* ParamStore::master(int param) const {
  const auto p = static_cast<size_t>(param);
  return fixed_offset_[p] < 0 ? flat_.data_ptr<float>() + buckets_.slots[p].offset
                              : fixed_.data_ptr<float>() + fixed_offset_[p];
}

plan::Digest ParamStore::digest() const {
  plan::Digest digest;
  for (size_t p = 0; p < table_.params.size(); ++p) {
    const plan::Param& param = table_.params[p];
    digest.add(param.name, 0, master(static_cast<int>(p)), param.numel);
  }
  return digest;
}

}  // namespace lockstep::state
