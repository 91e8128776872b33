#include "lockstep/plan/model_cut.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

TEST(ModelCut, PiecesCoverEveryLayerOnce) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int pieces = 1; pieces <= layers; ++pieces) {
      const std::vector<ModelChunk> chunks = cut_layers(layers, pieces);
      ASSERT_EQ(std::ssize(chunks), pieces);
      int64_t next = 0;
      for (int p = 0; p < pieces; ++p) {
        const ModelChunk& chunk = chunks[static_cast<size_t>(p)];
        EXPECT_EQ(chunk.first_layer, next);
        EXPECT_GE(chunk.last_layer, next + layers / pieces);
        EXPECT_LE(chunk.last_layer, next + layers / pieces + 1);
        EXPECT_EQ(chunk.embeds, p == 0);
        EXPECT_EQ(chunk.heads, p + 1 == pieces);
        next = chunk.last_layer;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(ModelCut, SizesOfOnesOwn) {
  const std::vector<ModelChunk> chunks = cut_layers(8, 3, parse_stage_sizes("3,1,4"));
  EXPECT_EQ(chunks[1].first_layer, 3);
  EXPECT_EQ(chunks[1].last_layer, 4);
  EXPECT_EQ(chunks[2].last_layer, 8);
}

TEST(ModelCut, RefusesWhatDoesNotFit) {
  EXPECT_THROW(cut_layers(2, 3), UsageError);
  EXPECT_THROW(cut_layers(8, 3, {3, 3, 3}), UsageError);
  EXPECT_THROW(cut_layers(8, 3, {4, 4}), UsageError);
  for (const char* text : {"3,", ",3", "0,8", "3;5", "x", "3,,5", "-1,9"}) {
    EXPECT_THROW(parse_stage_sizes(text), UsageError) << text;
  }
  EXPECT_TRUE(parse_stage_sizes("").empty());
}

}  // namespace
}  // namespace lockstep::plan
