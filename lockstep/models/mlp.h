/// A next-token model without attention: the embeddings of the last 8 tokens side by side, then
/// hidden layers with tanh, then a head of its own.
///
/// Source  Bengio et al. 2003, "A neural probabilistic language model", JMLR 3
///
/// Parameters, in the order of use: wte.weight (V, D), fc.0.weight (F, 8 D), fc.N.weight (F, F),
/// each fc with a bias (F) if asked for, lm_head.weight (V, F). Before the start of a sequence
/// there is no token: zeros stand for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/language_model.h"
#include "lockstep/models/layers.h"

namespace lockstep::models {

struct MlpSettings {
  int64_t vocab = 0;
  int64_t layers = 0;  // hidden ones
  int64_t width = 0;   // of an embedding
  int64_t ffn = 0;     // of a hidden layer
  double dropout = 0;  // after each hidden layer
  bool bias = true;
  double init_std = 0.02;
  bool recompute = false;  // what is inside a hidden layer, in backward
};

class Mlp final : public LanguageModel {
 public:
  static constexpr int64_t kWindow = 8;

  /// Throws UsageError naming field and value: a size below 1, a dropout outside [0, 1), an
  /// init_std that is not positive.
  explicit Mlp(const MlpSettings& settings);

  at::Tensor logits(const at::Tensor& ids_BS, const RankContext& context) override;

  /// Matrices and embeddings: normal, init_std; biases 0.
  plan::Init init_of(const std::string& path) const override;

  /// 6 N, with N all parameters but the embedding's, which takes part in no product.
  double flops_per_token() const override;

 private:
  MlpSettings settings_;
  std::shared_ptr<Matrix> wte_;
  std::vector<std::shared_ptr<Matrix>> hidden_;
  std::shared_ptr<Matrix> lm_head_;
};

}  // namespace lockstep::models
