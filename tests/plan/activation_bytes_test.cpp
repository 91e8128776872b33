#include "lockstep/plan/activation_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::plan {
namespace {

/// Of one layer more, in elements.
int64_t kept_of_a_block(DecoderShape shape, Recompute recompute) {
  const int64_t before = decoder_activation_bytes(shape, recompute).kept;
  ++shape.layers;
  return (decoder_activation_bytes(shape, recompute).kept - before) / 4;
}

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
    const int64_t branches = s.dropout ? 2 * N * D : 0, attention = (s.dropout ? 3 : 1) * P;
    const int64_t rest = 8 * N * D + 2 * N * F + 4 * N + branches;
    EXPECT_EQ(kept_of_a_block(s, Recompute::none), rest + attention);
    EXPECT_EQ(kept_of_a_block(s, Recompute::selective), rest);
    EXPECT_EQ(kept_of_a_block(s, Recompute::block), N * D);
  }
}

TEST(ActivationBytes, ALayerMoreAddsToThePeakWhatItKeeps) {
  for (DecoderShape shape : shapes()) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
      const ActivationBytes of = decoder_activation_bytes(shape, recompute);
      EXPECT_GE(of.peak, of.kept);
      DecoderShape more = shape;
      ++more.layers;
      EXPECT_EQ(decoder_activation_bytes(more, recompute).peak - of.peak,
                4 * kept_of_a_block(shape, recompute));
    }
  }
}

TEST(ActivationBytes, OfASetting) {
  EXPECT_EQ(recompute_of("none"), Recompute::none);
  EXPECT_EQ(recompute_of("selective"), Recompute::selective);
  EXPECT_EQ(recompute_of("block"), Recompute::block);
}

}  // namespace
}  // namespace lockstep::plan
