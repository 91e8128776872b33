// Activations between stages: what is read is what was sent, in order, whatever its maker does
// next.

#include "lockstep/parallel/pipeline/stage_messages.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/net/world.h"

namespace lockstep {
namespace {

using Kind = StageMessages::Kind;

plan::PipelineSchedule shape(int stages, int chunks = 1) {
  plan::PipelineSchedule shape;
  shape.stages = stages;
  shape.chunks = chunks;
  return shape;
}

std::vector<int> all_ranks(int ranks) {
  std::vector<int> stages;
  for (int rank = 0; rank < ranks; ++rank) stages.push_back(rank);
  return stages;
}

void on_stages(int ranks, int chunks,
               const std::function<void(StageMessages& messages, int stage)>& body) {
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& group) {
    ProcessGroup world(group);
    StageMessages messages(world, all_ranks(ranks), shape(ranks, chunks));
    body(messages, world.rank());
    messages.flush();
    world.barrier();
  });
}

/// The memory of an activation is given up, and taken by the next one, while it is on its way.
TEST(StageMessages, PP_5_AnActivationIsReadAsItWasSent) {
  on_stages(2, 1, [](StageMessages& messages, int stage) {
    for (int repeat = 0; repeat < 100; ++repeat) {
      const int64_t numel = repeat % 10 == 0 ? 200'000 : 1000;  // read in place, and copied
      if (stage == 0) {
        messages.send(Kind::activation, 0, 1, at::arange(1, numel + 1, at::kFloat));
        const at::Tensor other = at::full({numel}, 7.0f);
        EXPECT_EQ(other[0].item<float>(), 7.0f);
      } else {
        if (repeat % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        const at::Tensor read = messages.recv(Kind::activation, 0, 1);
        EXPECT_TRUE(at::equal(read, at::arange(1, numel + 1, at::kFloat))) << repeat;
      }
    }
  });
}

TEST(StageMessages, ShapesTravelWithTheTensors) {
  const std::vector<std::vector<int64_t>> shapes = {{3, 5, 7}, {2, 5, 7}, {0, 4}, {}, {1, 1, 1, 9}};
  on_stages(2, 1, [&](StageMessages& messages, int stage) {
    for (const auto& sizes : shapes) {
      if (stage == 0) {
        messages.send(Kind::activation, 0, 1, at::full(sizes, 2.5, at::kDouble));
      } else {
        const at::Tensor read = messages.recv(Kind::activation, 0, 1);
        EXPECT_EQ(read.sizes(), at::IntArrayRef(sizes));
        EXPECT_TRUE(at::equal(read, at::full(sizes, 2.5, at::kDouble)));
      }
    }
  });
}

/// Every stage sends before it receives, all around: no edge waits for another.
TEST(StageMessages, ARingOfSendsStandsStillNowhere) {
  on_stages(3, 2, [](StageMessages& messages, int stage) {
    const int next = (stage + 1) % 3, before = (stage + 2) % 3;
    for (int repeat = 0; repeat < 3; ++repeat) {
      messages.send(Kind::activation, stage, next, at::full({300'000}, stage + 0.5f));
      messages.send(Kind::gradient, stage, before, at::full({300'000}, -stage - 0.5f));
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      EXPECT_EQ(messages.recv(Kind::gradient, next, stage)[5].item<float>(), -next - 0.5f);
      EXPECT_EQ(messages.recv(Kind::activation, before, stage)[5].item<float>(), before + 0.5f);
    }
  });
}

TEST(StageMessages, BytesAreThoseOfTheCard) {
  on_stages(2, 1, [](StageMessages& messages, int stage) {
    messages.reset_totals();
    if (stage == 0) {
      messages.send(Kind::activation, 0, 1, at::full({10, 10}, 1.0f));
      messages.recv(Kind::gradient, 1, 0);
      EXPECT_EQ(messages.totals().bytes, 5 * 4 + plan::kMessageHeaderBytes);
    } else {
      messages.recv(Kind::activation, 0, 1);
      messages.send(Kind::gradient, 1, 0, at::full({5}, 1.0f));
      EXPECT_EQ(messages.totals().bytes, 100 * 4 + plan::kMessageHeaderBytes);
    }
  });
}

}  // namespace
}  // namespace lockstep
