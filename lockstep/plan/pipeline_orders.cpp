// The orders in which a stage computes. Each micro-batch is told apart only by its number: an order
// for more micro-batches than there are stays right without the steps of those that are not there,
// since no step waits for one of another micro-batch. `without_phantoms` uses that.

#include <algorithm>

#include "lockstep/plan/pipeline_schedule.h"

namespace lockstep::plan {
namespace {

/// Steps one after another; how many of an (operation, chunk) there are so far numbers the next.
class Order {
 public:
  explicit Order(int chunks) : counts_(static_cast<size_t>(chunks) * 3, 0) {}

  void add(PipelineOp op, int chunk = 0) { steps_.push_back({op, chunk, count(op, chunk)++}); }

  int& count(PipelineOp op, int chunk = 0) {
    return counts_[static_cast<size_t>(chunk) * 3 + static_cast<size_t>(op)];
  }

  std::vector<PipelineStep> without_phantoms(int micro_batches) && {
    std::erase_if(steps_, [&](const PipelineStep& step) { return step.micro >= micro_batches; });
    return std::move(steps_);
  }

 private:
  std::vector<PipelineStep> steps_;
  std::vector<int> counts_;
};

constexpr PipelineOp F = PipelineOp::forward;
constexpr PipelineOp B = PipelineOp::backward;
constexpr PipelineOp W = PipelineOp::weight;

}  // namespace

std::vector<PipelineStep> gpipe(int stages, int micro_batches) {
  if (stages == 1) return one_f_one_b(0, 1, micro_batches);
  Order order(1);
  for (int micro = 0; micro < micro_batches; ++micro) order.add(F);
  for (int micro = 0; micro < micro_batches; ++micro) order.add(B);
  return std::move(order).without_phantoms(micro_batches);
}

std::vector<PipelineStep> one_f_one_b(int stage, int stages, int micro_batches) {
  Order order(1);
  for (int i = 0; i < stages - stage - 1; ++i) order.add(F);
  for (int i = 0; i < micro_batches; ++i) {
    order.add(F);
    order.add(B);
  }
  return std::move(order).without_phantoms(micro_batches);
}

std::vector<PipelineStep> interleaved(int stage, int stages, int chunks, int micro_batches) {
  const int groups = (micro_batches + stages - 1) / stages;  // of P micro-batches
  const int slots = groups * stages * chunks;
  // P micro-batches pass chunk 0, the same P chunk 1, ...; backward goes through the chunks the
  // other way round.
  const auto chunk_of_slot = [&](int slot) { return slot / stages % chunks; };
  Order order(chunks);
  const auto forward = [&](int slot) {
    if (slot < slots) order.add(F, chunk_of_slot(slot));
  };
  // Stage s is 2 (P - s - 1) slots ahead of the last one: a forward there and a backward back.
  const int warmup = 2 * (stages - stage - 1) + (chunks - 1) * stages;
  for (int slot = 0; slot < warmup; ++slot) forward(slot);
  for (int slot = 0; slot < slots; ++slot) {
    forward(warmup + slot);
    order.add(B, chunks - 1 - chunk_of_slot(slot));
  }
  return std::move(order).without_phantoms(micro_batches);
}

std::vector<PipelineStep> zero_bubble(int stage, int stages, int micro_batches) {
  Order order(1);
  for (int i = 0; i < stages - stage - 1; ++i) order.add(F);
  for (int i = 0; i < micro_batches; ++i) {
    order.add(F);
    order.add(B);
    if (i >= stage) order.add(W);
  }
  while (order.count(W) < micro_batches) order.add(W);
  return std::move(order).without_phantoms(micro_batches);
}

std::vector<PipelineStep> zero_bubble_v(int stage, int stages, int micro_batches) {
  const int count = std::max(2 * stages - 1, micro_batches);  // of the shortest that fills the V
  Order order(2);
  for (int i = 0; i < 2 * (stages - stage) - 1; ++i) order.add(F, 0);
  for (int i = 0; i < stage; ++i) {
    order.add(F, 1);
    order.add(F, 0);
  }
  for (int i = 0; i < stages - stage; ++i) {
    order.add(F, 1);
    order.add(B, 1);
    order.add(W, 1);
  }
  while (order.count(F, 1) < count) {
    if (order.count(F, 0) < count) order.add(F, 0);
    order.add(B, 0);
    order.add(W, 0);
    order.add(F, 1);
    order.add(B, 1);
    order.add(W, 1);
  }
  // The way back is short of weight gradients nowhere: first the backwards that others wait for.
  for (int i = 0; i < stage; ++i) {
    order.add(B, 0);
    order.add(B, 1);
  }
  for (int i = 0; i < stages - stage; ++i) {
    order.add(B, 0);
    order.add(W, 0);
  }
  for (const int chunk : {1, 0}) {
    while (order.count(W, chunk) < count) order.add(W, chunk);
  }
  return std::move(order).without_phantoms(micro_batches);
}

}  // namespace lockstep::plan
