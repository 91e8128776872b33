// Each fused function against the operators of LibTorch that it stands for, forward and backward,
// in turns, in one thread.
//
//   OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 build/bin/bench_kernels [ROUNDS] [WORD]
//
// A line a function and shape: processor time of a call, and how many times as long LibTorch takes:
// medians of all turns, then the least and largest of the rounds' medians. WORD: only functions
// whose name has it.

#include <ATen/Parallel.h>
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/fused/attention.h"
#include "lockstep/fused/embedding.h"
#include "lockstep/fused/gelu.h"
#include "lockstep/fused/norm.h"
#include "lockstep/fused/swiglu.h"
#include "lockstep/fused/token_loss.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/parallel/tensor/linear.h"

namespace {

using namespace lockstep;
using torch::autograd::variable_list;

constexpr double kEps = 1e-5;
constexpr int kTurns = 15;              // of a round, at most
constexpr double kRoundUs = 1'000'000;  // of one side, about

using Forward = std::function<variable_list(const variable_list&)>;

/// One function: both sides take `inputs` and give tensors of the same shapes.
struct Row {
  std::string name;
  variable_list inputs;  // floats get a gradient
  Forward ours;
  Forward theirs;
};

at::Tensor floats(at::IntArrayRef shape) { return torch::randn(shape); }

/// Activations of a micro-batch: samples of `sequence` tokens of `width`.
struct Shape {
  int64_t samples, sequence, width, ffn, heads;
  std::vector<int64_t> of(int64_t last) const { return {samples, sequence, last}; }
};

/// Maps of [rows, in], in fp32 and with operands in bf16; LibTorch casts to bf16 and back, as its
/// autocast does.
void add_linear(std::vector<Row>& rows, const Shape& shape, int64_t in, int64_t out) {
  for (const bool bf16 : {false, true}) {
    if (bf16 && !kernels::has_bf16_products()) continue;
    parallel::TensorGroup group;
    group.arithmetic = {.fused = true,
                        .compute = bf16 ? plan::ComputeType::bf16 : plan::ComputeType::fp32};
    rows.push_back({"linear to " + std::to_string(out) + (bf16 ? ", bf16" : ""),
                    {floats(shape.of(in)), floats({out, in}), floats({out})},
                    [group](const variable_list& x) {
                      return variable_list{parallel::linear(group, x[0], x[1], x[2])};
                    },
                    [bf16](const variable_list& x) {
                      if (!bf16) return variable_list{at::linear(x[0], x[1], x[2])};
                      return variable_list{at::linear(x[0].to(at::kBFloat16),
                                                      x[1].to(at::kBFloat16),
                                                      x[2].to(at::kBFloat16))
                                               .to(at::kFloat)};
                    }});
  }
}

/// As models/detail/decoder_block.cpp computes it of LibTorch's operators.
at::Tensor plain_attention(const at::Tensor& qkv, int64_t heads, const at::Tensor& mask) {
  const int64_t B = qkv.size(0), S = qkv.size(1), K = qkv.size(2) / (3 * heads);
  const auto parts = at::unbind(
      qkv.view({B, S, 3, heads, K}).permute({2, 0, 3, 1, 4}).reshape({3, B * heads, S, K}));
  const at::Tensor scores = at::baddbmm(mask, parts[0], parts[1].transpose(1, 2), 1,
                                        1 / std::sqrt(static_cast<double>(K)));
  return at::bmm(at::softmax(scores, -1), parts[2])
      .view({B, heads, S, K})
      .transpose(1, 2)
      .reshape({B, S, heads * K});
}

void add_attention(std::vector<Row>& rows, const Shape& shape, int64_t heads) {
  const fused::AttentionSettings settings{
      .arithmetic = {.fused = true},
      .heads = heads,
      .kv_heads = heads,
      .scale = 1 / std::sqrt(static_cast<double>(shape.width / heads)),
      .cos = {},
      .sin = {}};
  const at::Tensor mask =
      at::full({shape.sequence, shape.sequence}, -std::numeric_limits<float>::infinity()).triu(1);
  rows.push_back({"attention",
                  {floats(shape.of(3 * shape.width))},
                  [settings](const variable_list& in) {
                    return variable_list{fused::attention(in[0], settings)};
                  },
                  [heads, mask](const variable_list& in) {
                    return variable_list{plain_attention(in[0], heads, mask)};
                  }});
}

void add_head(std::vector<Row>& rows, const Shape& shape, int64_t vocab) {
  rows.push_back({"head and loss of " + std::to_string(vocab),
                  {floats(shape.of(shape.width)), floats({vocab, shape.width}),
                   torch::randint(vocab, {shape.samples * shape.sequence}, at::kLong)},
                  [](const variable_list& in) {
                    return variable_list{
                        fused::token_losses({.fused = true}, in[0], in[1], in[2]).sum()};
                  },
                  [](const variable_list& in) {
                    return variable_list{at::cross_entropy_loss(
                        at::linear(in[0], in[1]).flatten(0, 1), in[2], {}, at::Reduction::Sum)};
                  }});
}

std::vector<Row> rows_of(const Shape& shape, std::initializer_list<int64_t> vocabularies) {
  const int64_t D = shape.width, F = shape.ffn;
  std::vector<Row> rows;
  rows.push_back({"gelu",
                  {floats(shape.of(F))},
                  [](const variable_list& in) { return variable_list{fused::gelu(in[0])}; },
                  [](const variable_list& in) { return variable_list{at::gelu(in[0], "tanh")}; }});
  rows.push_back({"swiglu",
                  {floats(shape.of(2 * F))},
                  [](const variable_list& in) { return variable_list{fused::swiglu(in[0])}; },
                  [](const variable_list& in) {
                    const std::vector<at::Tensor> halves = in[0].chunk(2, -1);
                    return variable_list{at::silu(halves[0]) * halves[1]};
                  }});
  rows.push_back({"layer_norm",
                  {floats(shape.of(D)), floats({D}), floats({D})},
                  [](const variable_list& in) {
                    return variable_list{fused::layer_norm(in[0], in[1], in[2], kEps)};
                  },
                  [D](const variable_list& in) {
                    return variable_list{at::layer_norm(in[0], {D}, in[1], in[2], kEps)};
                  }});
  rows.push_back({"residual_layer_norm",
                  {floats(shape.of(D)), floats(shape.of(D)), floats({D}), floats({D})},
                  [](const variable_list& in) {
                    const auto [sum, y] =
                        fused::residual_layer_norm(in[0], in[1], in[2], in[3], kEps);
                    return variable_list{sum, y};
                  },
                  [D](const variable_list& in) {
                    const at::Tensor sum = in[0] + in[1];
                    return variable_list{sum, at::layer_norm(sum, {D}, in[2], in[3], kEps)};
                  }});
  const auto rms = [](const at::Tensor& x, const at::Tensor& gain) {
    return x * at::rsqrt(at::mul(x, x).mean(-1, true).add_(kEps)) * gain;
  };
  rows.push_back(
      {"rms_norm",
       {floats(shape.of(D)), floats({D})},
       [](const variable_list& in) { return variable_list{fused::rms_norm(in[0], in[1], kEps)}; },
       [rms](const variable_list& in) { return variable_list{rms(in[0], in[1])}; }});
  rows.push_back({"residual_rms_norm",
                  {floats(shape.of(D)), floats(shape.of(D)), floats({D})},
                  [](const variable_list& in) {
                    const auto [sum, y] = fused::residual_rms_norm(in[0], in[1], in[2], kEps);
                    return variable_list{sum, y};
                  },
                  [rms](const variable_list& in) {
                    const at::Tensor sum = in[0] + in[1];
                    return variable_list{sum, rms(sum, in[2])};
                  }});
  add_linear(rows, shape, D, 3 * D);
  add_linear(rows, shape, F, D);
  add_attention(rows, shape, shape.heads);
  for (const int64_t vocab : vocabularies) {
    add_head(rows, shape, vocab);
    rows.push_back({"embedding of " + std::to_string(vocab),
                    {torch::randint(vocab, {shape.samples, shape.sequence}, at::kLong),
                     floats({vocab, D}), floats({shape.sequence, D})},
                    [](const variable_list& in) {
                      return variable_list{fused::embedding(in[0], in[1], in[2])};
                    },
                    [](const variable_list& in) {
                      return variable_list{at::embedding(in[1], in[0]) + in[2]};
                    }});
  }
  return rows;
}

/// Of this thread on its processor: others may use the machine too.
double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

/// Forward and backward once; the gradients are let go.
double time_of(const Forward& function, const variable_list& inputs, const variable_list& wanted,
               const variable_list& gradients) {
  const double start = processor_us();
  const variable_list outputs = function(inputs);
  torch::autograd::grad(outputs, wanted, gradients);
  return processor_us() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void measure(const Row& row, int rounds) {
  variable_list wanted;
  for (const at::Tensor& input : row.inputs) {
    if (input.is_floating_point()) wanted.push_back(input.requires_grad_());
  }
  variable_list gradients;
  for (const at::Tensor& output : row.ours(row.inputs)) gradients.push_back(at::randn_like(output));
  std::vector<double> ours, theirs, ratios;
  const double once = time_of(row.theirs, row.inputs, wanted, gradients);
  const int turns = std::clamp(static_cast<int>(kRoundUs / once), 2, kTurns);
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> our_round, their_round;
    for (int turn = 0; turn < turns; ++turn) {
      our_round.push_back(time_of(row.ours, row.inputs, wanted, gradients));
      their_round.push_back(time_of(row.theirs, row.inputs, wanted, gradients));
    }
    ratios.push_back(median(their_round) / median(our_round));
    ours.insert(ours.end(), our_round.begin(), our_round.end());
    theirs.insert(theirs.end(), their_round.begin(), their_round.end());
  }
  const auto [least, largest] = std::minmax_element(ratios.begin(), ratios.end());
  std::string shape;
  for (const int64_t size : row.inputs[0].sizes()) {
    shape += (shape.empty() ? "" : " x ") + std::to_string(size);
  }
  std::printf("| %s | %s | %.0f | %.0f | %.2f (%.2f..%.2f) |\n", row.name.c_str(), shape.c_str(),
              median(ours), median(theirs), median(theirs) / median(ours), *least, *largest);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  memory::install_counting_allocator();
  at::set_num_threads(1);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  const std::string word = argc > 2 ? argv[2] : "";
  if (rounds < 1) {
    std::fprintf(stderr, "%s is no number of rounds\n", argv[1]);
    return 2;
  }
  // The presets small and nano.
  std::vector<Row> rows = rows_of({4, 256, 384, 1536, 6}, {256, 50304});
  for (Row& row : rows_of({4, 128, 128, 512, 4}, {256})) rows.push_back(std::move(row));
  std::printf("| function | input | ours, us | LibTorch, us | LibTorch / ours |\n");
  std::printf("|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    if (row.name.find(word) != std::string::npos) measure(row, rounds);
  }
}
