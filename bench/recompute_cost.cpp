// What memory.recompute costs and saves: forward and backward of one micro-batch of the decoder
// with none, selective (of LibTorch's kernels) and block, in turns, in one thread.
//
//   OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 build/bin/bench_recompute_cost [ROUNDS]
//
// A line a setting: bytes at the peak as counted and as planned; processor times as least, median
// and largest of the rounds; and how much more a step takes than without recompute by the same
// kernels, in forwards of the same round.

#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/kernels/gemm.h"
#include "lockstep/memory/account.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/models/decoder.h"
#include "lockstep/plan/activation_bytes.h"

namespace {

using namespace lockstep;

struct Setting {
  const char* name;
  fused::Arithmetic by;
  plan::Recompute recompute;
  size_t none;  // which setting is the same without recompute
};

std::vector<Setting> settings() {
  using plan::Recompute;
  std::vector<Setting> all = {{"aten, none", {}, Recompute::none, 0},
                              {"aten, selective", {}, Recompute::selective, 0},
                              {"aten, block", {}, Recompute::block, 0},
                              {"fused, none", {.fused = true}, Recompute::none, 3},
                              {"fused, block", {.fused = true}, Recompute::block, 3}};
  if (!kernels::has_bf16_products()) return all;
  const fused::Arithmetic bf16{.fused = true, .compute = plan::ComputeType::bf16};
  all.push_back({"fused bf16, none", bf16, Recompute::none, 5});
  all.push_back({"fused bf16, block", bf16, Recompute::block, 5});
  return all;
}

// The preset small.
constexpr plan::DecoderShape kShape{.batch = 4,
                                    .sequence = 256,
                                    .width = 384,
                                    .heads = 6,
                                    .ffn = 4 * 384,
                                    .layers = 6,
                                    .vocab = 256};

struct Times {
  double forward_ms;
  double step_ms;
};

/// Of this thread on its processor: others may use the machine too.
double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

std::shared_ptr<models::Decoder> decoder(const Setting& setting) {
  auto model =
      std::make_shared<models::Decoder>(models::DecoderSettings{.vocab = kShape.vocab,
                                                                .layers = kShape.layers,
                                                                .heads = kShape.heads,
                                                                .width = kShape.width,
                                                                .ffn = kShape.ffn,
                                                                .context = kShape.sequence,
                                                                .recompute = setting.recompute,
                                                                .arithmetic = setting.by});
  const at::NoGradGuard guard;
  for (at::Tensor& parameter : model->parameters()) {
    parameter.normal_(0, 0.02);
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  return model;
}

Times step(models::Decoder& model, const at::Tensor& ids) {
  const double start = processor_ms();
  const at::Tensor losses = model.token_losses(ids, ids, RankContext{});
  const double forward_ms = processor_ms() - start;
  losses.backward(at::full_like(losses, 1.0 / static_cast<double>(ids.numel())));
  return {forward_ms, processor_ms() - start};
}

std::string spread(std::vector<double> values, const char* format) {
  std::sort(values.begin(), values.end());
  std::string text;
  for (const double value : {values.front(), values[values.size() / 2], values.back()}) {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), format, value);
    text += (text.empty() ? "" : " / ") + std::string(number.data());
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  memory::install_counting_allocator();
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  if (rounds < 1) {
    std::fprintf(stderr, "%s is no number of rounds\n", argv[1]);
    return 2;
  }
  const at::Tensor ids = torch::randint(kShape.vocab, {kShape.batch, kShape.sequence});
  const std::vector<Setting> all = settings();
  std::vector<std::shared_ptr<models::Decoder>> models;
  std::vector<int64_t> peaks;
  for (const Setting& setting : all) {
    models.push_back(decoder(setting));
    step(*models.back(), ids);
    const int64_t before = memory::tensor_memory().current_bytes;
    memory::reset_peak();
    step(*models.back(), ids);
    peaks.push_back(memory::tensor_memory().peak_bytes - before);
  }
  std::vector<std::vector<Times>> times(all.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) times[i].push_back(step(*models[i], ids));
  }
  std::printf(
      "| kernels, recompute | peak, MiB | planned | step, processor ms | more than none, forwards "
      "|\n");
  std::printf("|---|---|---|---|---|\n");
  for (size_t i = 0; i < all.size(); ++i) {
    const Setting& setting = all[i];
    std::vector<double> steps, more;
    for (size_t round = 0; round < times[i].size(); ++round) {
      const Times& none = times[setting.none][round];
      steps.push_back(times[i][round].step_ms);
      more.push_back((times[i][round].step_ms - none.step_ms) / none.forward_ms);
    }
    plan::DecoderShape shape = kShape;
    shape.fused = setting.by.fused;
    shape.compute = setting.by.compute;
    const int64_t planned = plan::decoder_activation_bytes(shape, setting.recompute).peak;
    std::printf("| %s | %.1f | %.1f | %s | %s |\n", setting.name,
                static_cast<double>(peaks[i]) / (1 << 20), static_cast<double>(planned) / (1 << 20),
                spread(steps, "%.0f").c_str(), spread(more, "%.2f").c_str());
  }
}
