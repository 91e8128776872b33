#include "lockstep/train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/norm_chunks.h"
#include "lockstep/train/batch_tensors.h"

namespace lockstep {

EvaluationResult evaluate(Task& task, const EvaluationOptions& wanted, const RankContext& context) {
  EvaluationOptions options = wanted;
  options.samples = std::min(options.samples, task.validation_samples());
  const at::NoGradGuard no_grad;
  RankContext evaluating = context;
  evaluating.training = false;

  ProcessGroup& world = *context.world;
  const int rank = options.rank < 0 ? world.rank() : options.rank;
  const int ranks = options.rank < 0 ? world.size() : options.ranks;
  const int leaves =
      static_cast<int>((options.samples + options.micro_batch - 1) / options.micro_batch);
  const auto sharing = static_cast<int>(context.sequence.by_rank.size());  // each sequence
  // More ranks than leaves: the last ranks have none, and take part in the sum only.
  const int working = std::min(ranks / sharing, leaves);
  const plan::LeafSchedule schedule =
      plan::divided_leaves(plan::plan_leaves(leaves, working, plan::LeafAssignment::contiguous),
                           context.sequence.grains, sharing);
  const bool works = rank < schedule.ranks;
  const plan::LeafRange mine = works ? schedule.run_of(rank) : plan::LeafRange{leaves, leaves};
  const plan::LeafRange grains = context.sequence.local;
  std::vector<double> losses(static_cast<size_t>(schedule.sum_leaves()));
  int64_t right = 0;  // of this rank's samples
  // All ranks go through as many rounds as the one with most leaves, so that they ask together.
  const int rounds = (leaves + working - 1) / working;
  for (int round = 0; round < rounds; ++round) {
    if (round > 0 && options.stop && options.stop()) {
      return {.loss = std::nan(""), .stopped = true};
    }
    const int leaf = mine.lo + round;
    const bool phantom = leaf >= mine.hi;
    if (phantom && !options.run_forward) continue;
    const auto forward = [&] {
      // The last leaf may be short; it is so on every layout.
      const int64_t first = leaf * options.micro_batch;
      const int64_t count = std::min(options.micro_batch, options.samples - first);
      ValidationScores scores;
      if (options.pass) {
        scores.losses = options.pass([&](int chunk, const at::Tensor& input) {
          return task.run_validation_chunk(chunk, input, first, count, options.samples, evaluating);
        });
      } else {
        scores = task.validate(first, count, options.samples, evaluating);
      }
      const at::Tensor& of_leaf = scores.losses;
      if (!of_leaf.defined()) return;
      if (scores.right.defined()) right += scores.right.sum().item<int64_t>();
      const int64_t each = of_leaf.numel() / grains.size();
      for (int grain = grains.lo; grain < grains.hi; ++grain) {
        losses[static_cast<size_t>(schedule.sum_leaf(leaf, grain))] =
            sum_in_order(of_leaf.narrow(0, (grain - grains.lo) * each, each));
      }
    };
    if (options.run_forward) {
      options.run_forward(phantom ? std::function<void()>() : forward);
    } else {
      forward();
    }
  }
  std::vector<LeafTerm> terms;
  for (const plan::LeafRange& range :
       works ? schedule.terms_of(rank) : std::vector<plan::LeafRange>()) {
    if (!options.has_losses) break;
    terms.push_back({range, at::full({1}, plan::tree_sum(losses.data() + range.lo, range.size()),
                                     at::kDouble)});
  }
  at::Tensor total = at::zeros({1}, at::kDouble);
  world.all_reduce(std::move(terms), schedule.sum_leaves(), total).wait();
  const int64_t count = options.samples * task.terms_per_sample();
  EvaluationResult result{.loss = total.item<double>() / static_cast<double>(count),
                          .terms = count};
  if (task.has_accuracy()) {
    at::Tensor of_all = at::full({1}, right, at::kLong);
    world.all_reduce(of_all).wait();
    result.accuracy =
        static_cast<double>(of_all.item<int64_t>()) / static_cast<double>(options.samples);
  }
  return result;
}

}  // namespace lockstep
