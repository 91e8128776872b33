#include "lockstep/plan/activation_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {
namespace {

/// Bytes of one layer more.
int64_t kept_of_a_block(DecoderShape shape, Recompute recompute) {
  const int64_t before = decoder_activation_bytes(shape, recompute).kept;
  ++shape.layers;
  return decoder_activation_bytes(shape, recompute).kept - before;
}

constexpr ComputeType kTypes[] = {ComputeType::fp32, ComputeType::bf16, ComputeType::fp16};

std::vector<DecoderShape> shapes() {
  std::vector<DecoderShape> all;
  for (const int64_t batch : {1, 3}) {
    for (const int64_t sequence : {1, 17, 256}) {
      for (const bool dropout : {false, true}) {
        for (const bool bias : {false, true}) {
          all.push_back({batch, sequence, 24, 3, 96, 1, 1000, dropout, bias});
          all.push_back({batch, sequence, 15, 5, 7, 12, 3, dropout, bias});
        }
      }
    }
  }
  return all;
}

TEST(ActivationBytes, TheCardHolds) {
  for (const DecoderShape& s : shapes()) {
    const int64_t N = s.batch * s.sequence, D = s.width, F = s.ffn;
    const int64_t P = s.batch * s.heads * s.sequence * s.sequence;
    const int64_t rest = 8 * N * D + 2 * N * F + 4 * N, attention = (s.dropout ? 2 : 1) * P;
    EXPECT_EQ(kept_of_a_block(s, Recompute::none), 4 * (rest + attention));
    EXPECT_EQ(kept_of_a_block(s, Recompute::selective), 4 * rest);
    EXPECT_EQ(kept_of_a_block(s, Recompute::block), 4 * N * D);
  }
}

TEST(ActivationBytes, TheCardHoldsOfTheFusedKernels) {
  for (DecoderShape s : shapes()) {
    s.fused = true;
    const int64_t N = s.batch * s.sequence, D = s.width, F = s.ffn;
    for (const ComputeType compute : kTypes) {
      s.compute = compute;
      const bool fp32 = compute == ComputeType::fp32;
      const int64_t kept = (fp32 ? 8 : 6) * N * D + N * F + 4 * N + N * s.heads;
      const int64_t operands = (fp32 ? 0 : 3) * N * D + N * F;
      const int64_t bytes = 4 * kept + (compute == ComputeType::bf16 ? 2 : 4) * operands;
      EXPECT_EQ(kept_of_a_block(s, Recompute::none), bytes) << name_of(compute);
      EXPECT_EQ(kept_of_a_block(s, Recompute::block), 4 * N * D) << name_of(compute);
    }
  }
}

/// What a matrix of logits would have, whatever the vocabulary: its weight has a gradient anyway.
TEST(ActivationBytes, TheFusedHeadKeepsNoLogits) {
  DecoderShape shape{.batch = 4, .sequence = 512, .width = 64, .heads = 4, .ffn = 256, .layers = 1};
  const auto kept = [&](bool fused, int64_t vocab) {
    shape.fused = fused;
    shape.vocab = vocab;
    return decoder_activation_bytes(shape, Recompute::none).kept;
  };
  const int64_t tokens = shape.batch * shape.sequence;
  EXPECT_EQ(kept(false, 1001) - kept(false, 1000), 4 * tokens);
  EXPECT_EQ(kept(true, 1001) - kept(true, 1000), 4 * shape.width);
}

TEST(ActivationBytes, ALayerMoreAddsToThePeakWhatItKeeps) {
  const auto expect = [](const DecoderShape& shape, Recompute recompute) {
    const ActivationBytes of = decoder_activation_bytes(shape, recompute);
    EXPECT_GE(of.peak, of.kept);
    DecoderShape more = shape;
    ++more.layers;
    EXPECT_EQ(decoder_activation_bytes(more, recompute).peak - of.peak,
              kept_of_a_block(shape, recompute));
  };
  for (DecoderShape shape : shapes()) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
      expect(shape, recompute);
    }
    shape.fused = true;
    for (const ComputeType compute : kTypes) {
      shape.compute = compute;
      for (const Recompute recompute : {Recompute::none, Recompute::block})
        expect(shape, recompute);
    }
  }
}

TEST(ActivationBytes, OfARun) {
  TrainConfig config = preset("nano");
  const DecoderShape nano = decoder_shape_of(config);
  EXPECT_TRUE(nano.fused);
  EXPECT_EQ(nano.batch, config.data.micro_batch);
  EXPECT_EQ(nano.ffn, 4 * config.model.width);
  config.numerics.kernels = "aten";
  EXPECT_FALSE(decoder_shape_of(config).fused);
  config.precision.compute = "bf16";
  EXPECT_EQ(decoder_shape_of(config).compute, ComputeType::bf16);
}

TEST(ActivationBytes, OfASetting) {
  EXPECT_EQ(recompute_of("none"), Recompute::none);
  EXPECT_EQ(recompute_of("selective"), Recompute::selective);
  EXPECT_EQ(recompute_of("block"), Recompute::block);
}

}  // namespace
}  // namespace lockstep::plan
