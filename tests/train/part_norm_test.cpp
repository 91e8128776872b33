// ZERO-1: the norm of a gradient whose pieces lie on ranks that each hold other parts of a model.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/net/world.h"
#include "lockstep/plan/buckets.h"
#include "lockstep/train/detail/shard_norm.h"

namespace lockstep {
namespace {

/// What a rank has: its own expert's grain, and what all of them hold.
struct Part {
  explicit Part(int rank)
      : table(plan::make_param_table(
            {{.name = base_name(rank), .shape = {1, 1}, .init = {}, .slice = slice_of(rank)},
             {.name = "shared", .shape = {1, 1}, .init = {}}},
            {})),
        buckets(plan::plan_buckets(table, 1024, 1024)),
        layout(plan::plan_shards(table, buckets, {})),
        gradient(table.params.size()) {
    for (size_t p = 0; p < table.params.size(); ++p) {
      gradient[p] = table.params[p].name == "shared" ? 5.0F : static_cast<float>(rank + 1);
    }
  }

  /// Experts 0 and 1 of two tensor grains each: ranks 0 and 1 share expert 0.
  static std::string base_name(int rank) {
    return "expert." + std::to_string(rank / 2) + "@" + std::to_string(rank % 2);
  }
  static plan::TensorSlice slice_of(int rank) {
    return {.logical = "expert." + std::to_string(rank / 2),
            .shape = {2, 1},
            .blocks = {2},
            .grain = rank % 2,
            .grains = 2};
  }

  plan::ParamTable table;
  plan::BucketPlan buckets;
  plan::ShardLayout layout;
  std::vector<float> gradient;
};

TEST(PartNorm, ZERO_1_ExpertAndTensorGrainsCountOnceAndAllOfThem) {
  net::run_on_threads(4, [](const std::shared_ptr<net::Group>& world) {
    ProcessGroup group(world);
    const Part part(group.rank());
    const ModelParts parts =
        exchange_parts(group, part.table, part.layout, /*shard=*/0, /*part=*/group.rank());
    detail::ShardNorm norm(parts, group);
    const double found = norm.euclidean(
        [&](const plan::Piece& piece) { return part.gradient.data() + piece.param; });
    EXPECT_EQ(found, std::sqrt(55.0)) << "1 + 4 + 9 + 16 + 25, on every rank";

    // The same in one process that holds all.
    const plan::ParamTable whole =
        plan::make_param_table({{.name = "expert.0", .shape = {2, 1}, .init = {}},
                                {.name = "expert.1", .shape = {2, 1}, .init = {}},
                                {.name = "shared", .shape = {1, 1}, .init = {}}},
                               {});
    const std::vector<std::vector<float>> gradients = {{1, 2}, {3, 4}, {5}};
    detail::ShardNorm alone(whole, plan::plan_shards(whole, plan::plan_buckets(whole, 64, 64), {}),
                            nullptr);
    EXPECT_EQ(alone.euclidean([&](const plan::Piece& piece) {
      return gradients[static_cast<size_t>(piece.param)].data() + piece.lo;
    }),
              found);
  });
}

}  // namespace
}  // namespace lockstep
