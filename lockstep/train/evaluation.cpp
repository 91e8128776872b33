#include "lockstep/train/evaluation.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "lockstep/input/sampler.h"
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/norm_chunks.h"
#include "lockstep/train/batch_tensors.h"

namespace lockstep {
namespace {

double leaf_loss(models::LanguageModel& model, const input::TokenFile& data,
                 const EvaluationOptions& options, const RankContext& context, int leaf) {
  // The last leaf may be short; it is so on every layout.
  const int64_t first = leaf * options.micro_batch;
  const int64_t rows = std::min(options.micro_batch, options.windows - first);
  std::vector<int64_t> tokens(static_cast<size_t>(rows * (options.context + 1)));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t window = first + row;
    data.read(input::evaluation_token(data.size(), options.context, options.windows, window),
              options.context + 1, tokens.data() + row * (options.context + 1));
  }
  const auto [ids, targets] = inputs_and_targets(tokens, options.context);
  return sum_in_order(model.token_losses(ids, targets, context));
}

}  // namespace

EvaluationResult evaluate(models::LanguageModel& model, const input::TokenFile& data,
                          const EvaluationOptions& wanted, const RankContext& context) {
  EvaluationOptions options = wanted;
  options.windows = std::min(
      options.windows, input::Sampler{.tokens = data.size(), .context = options.context}.windows());
  const at::NoGradGuard no_grad;
  RankContext evaluating = context;
  evaluating.training = false;

  ProcessGroup& world = *context.world;
  const int leaves =
      static_cast<int>((options.windows + options.micro_batch - 1) / options.micro_batch);
  // More ranks than leaves: the last ranks have none, and take part in the sum only.
  const int working = std::min(world.size(), leaves);
  plan::LeafRange mine{leaves, leaves};
  if (world.rank() < working) {
    mine =
        plan::plan_leaves(leaves, working, plan::LeafAssignment::contiguous).run_of(world.rank());
  }
  std::vector<double> losses(static_cast<size_t>(leaves));
  // All ranks go through as many rounds as the one with most leaves, so that they ask together.
  const int rounds = (leaves + working - 1) / working;
  for (int round = 0; round < rounds; ++round) {
    if (round > 0 && options.stop && options.stop()) {
      return {.loss = std::numeric_limits<double>::quiet_NaN(), .stopped = true};
    }
    const int leaf = mine.lo + round;
    if (leaf >= mine.hi) continue;
    losses[static_cast<size_t>(leaf)] = leaf_loss(model, data, options, evaluating, leaf);
  }
  std::vector<LeafTerm> terms;
  for (const plan::LeafRange& range : plan::maximal_subtrees(leaves, mine)) {
    terms.push_back({range, at::full({1}, plan::tree_sum(losses.data() + range.lo, range.size()),
                                     at::kDouble)});
  }
  at::Tensor total = at::zeros({1}, at::kDouble);
  world.all_reduce(std::move(terms), leaves, total).wait();
  const int64_t tokens = options.windows * options.context;
  return {.loss = total.item<double>() / static_cast<double>(tokens), .tokens = tokens};
}

}  // namespace lockstep
