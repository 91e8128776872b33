#include "lockstep/train/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int64_t pick(const float* logits, int64_t vocab, const GenerationOptions& options, double uniform) {
  if (options.temperature == 0) return std::max_element(logits, logits + vocab) - logits;
  std::vector<int64_t> candidates(static_cast<size_t>(vocab));
  std::iota(candidates.begin(), candidates.end(), int64_t{0});
  if (options.top_k > 0 && options.top_k < vocab) {
    std::partial_sort(candidates.begin(), candidates.begin() + options.top_k, candidates.end(),
                      [logits](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    candidates.resize(static_cast<size_t>(options.top_k));
  }
  const double top = *std::max_element(logits, logits + vocab);
  std::vector<double> weights;
  for (const int64_t token : candidates) {
    weights.push_back(std::exp((logits[token] - top) / options.temperature));
  }
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < candidates.size(); ++i) {
    left -= weights[i];
    if (left < 0) return candidates[i];
  }
  return candidates.back();
}

}  // namespace

std::vector<int64_t> generate(models::LanguageModel& model, std::vector<int64_t> prompt,
                              const GenerationOptions& options) {
  if (prompt.empty()) throw UsageError("generate: the prompt is empty. Give at least one token.");
  const at::NoGradGuard no_grad;
  RankContext context;
  context.training = false;
  const base::RandomKey key = base::RandomKey(options.seed).with("generate");
  std::vector<int64_t> text = std::move(prompt);
  const size_t first = text.size();
  for (int64_t made = 0; made < options.tokens; ++made) {
    const auto window = std::min<int64_t>(options.context, static_cast<int64_t>(text.size()));
    const at::Tensor ids =
        at::from_blob(text.data() + text.size() - window, {1, window}, at::kLong).clone();
    const at::Tensor last =
        model.logits(ids, context).select(0, 0).select(0, window - 1).contiguous();
    text.push_back(pick(last.data_ptr<float>(), last.numel(), options,
                        key.uniform(static_cast<uint64_t>(made))));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(first), text.end()};
}

}  // namespace lockstep
