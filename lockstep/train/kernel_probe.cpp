#include "lockstep/train/kernel_probe.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <map>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/fused/product.h"
#include "lockstep/kernels/gemm.h"
#include "lockstep/plan/digest.h"

namespace lockstep {
namespace {

at::Tensor fixed_input(at::IntArrayRef shape, std::string_view name) {
  at::Tensor values = at::empty(shape, at::kFloat);
  float* out = values.data_ptr<float>();
  const base::RandomKey key = base::RandomKey(0).with("probe").with(name);
  for (int64_t i = 0; i < values.numel(); ++i) {
    out[i] = static_cast<float>(2 * key.uniform(static_cast<uint64_t>(i)) - 1);
  }
  return values;
}

/// Of two square matrices, by oneDNN.
at::Tensor product(kernels::OperandType type, int64_t size) {
  const fused::Arithmetic arithmetic{.fused = true,
                                     .compute = type == kernels::OperandType::bf16
                                                    ? plan::ComputeType::bf16
                                                    : plan::ComputeType::fp32};
  return fused::outputs(arithmetic, fused::operand(arithmetic, fixed_input({size, size}, "left")),
                        fused::operand(arithmetic, fixed_input({size, size}, "right")), {});
}

/// "-SkylakeX": the kernels that OpenBLAS chose or was told to use; nothing with another BLAS.
std::string blas_kernels() {
  using Name = char* (*)();
  const auto name = reinterpret_cast<Name>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return name != nullptr ? base::str("-", name()) : "";
}

}  // namespace

std::string kernel_fingerprint() {
  plan::Digest digest;
  const auto add = [&digest](std::string_view name, const at::Tensor& result) {
    const at::Tensor flat = result.detach().contiguous();
    digest.add(name, 0, flat.data_ptr<float>(), flat.numel());
  };
  // OpenBLAS has a kernel of its own for small products (m n k below 10^6).
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{5, 7, 3}, {64, 96, 128}, {192, 256, 384}}) {
    add(base::str("product", m), at::mm(fixed_input({m, k}, "left"), fixed_input({k, n}, "right")));
  }
  for (const kernels::OperandType type : {kernels::OperandType::fp32, kernels::OperandType::bf16}) {
    if (type == kernels::OperandType::bf16 && !kernels::has_bf16_products()) continue;
    for (const int64_t size : {int64_t{33}, int64_t{192}}) {
      add(base::str("gemm", size), product(type, size));
    }
  }
  const at::Tensor rows = fixed_input({33, 129}, "rows").requires_grad_();
  const at::Tensor gain = fixed_input({129}, "gain").requires_grad_();
  const at::Tensor shift = fixed_input({129}, "shift").requires_grad_();
  const at::Tensor normed = at::layer_norm(rows, {129}, gain, shift);
  normed.backward(fixed_input({33, 129}, "slope"));
  add("norm", normed);
  add("norm rows", rows.grad());
  add("norm gain", gain.grad());
  const at::Tensor plain = rows.detach();
  add("exp", at::exp(plain));
  add("gelu", at::gelu(plain, "tanh"));
  add("softmax", at::softmax(plain, -1));
  add("sum", at::sum(plain).reshape({1}));
  return digest.text();
}

std::string instruction_set() {
  // Asked once a process: ranks that are threads would otherwise meet in LibTorch's first use of
  // it.
  static const std::string name = [] {
    // LibTorch's own account of itself has a line "- CPU capability usage: AVX2".
    const std::string config = at::show_config();
    const std::string label = "CPU capability usage: ";
    const size_t found = config.find(label);
    if (found == std::string::npos) return std::string("unknown");
    std::string word;
    for (size_t at = found + label.size(); at < config.size() && config[at] != '\n'; ++at) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(config[at])));
    }
    return word;
  }();
  return name;
}

std::string kernel_set(bool fused) {
  const std::string aten = base::str("aten-", TORCH_VERSION, blas_kernels());
  return fused ? base::str(fused::kKernelSet, "+", kernels::gemm_library(), "+", aten) : aten;
}

std::string kernel_set(const plan::TrainConfig& config) {
  const bool has_kernels = config.model.family == "gpt2" || config.model.family == "llama";
  return kernel_set(has_kernels && fused::arithmetic_of(config).fused);
}

void require_products(const plan::TrainConfig& config) {
  if (config.precision.compute != "bf16" || kernels::has_bf16_products()) return;
  throw EnvironmentError(
      "precision.compute = bf16, but this processor, or what ONEDNN_MAX_CPU_ISA leaves of it, has "
      "no bf16 products.\n  Train with --set precision.compute=fp32.");
}

void require_alike(ProcessGroup& world) {
  std::map<std::string, std::vector<std::string>> ranks_by_kernels;
  const std::string mine =
      base::str(kernel_set(/*fused=*/true), " ", instruction_set(), " ", kernel_fingerprint());
  const std::vector<std::string> all = world.gather_text(mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    ranks_by_kernels[all[rank]].push_back(std::to_string(rank));
  }
  if (ranks_by_kernels.size() == 1) return;
  std::vector<std::string> sets;
  for (const auto& [kernels, ranks] : ranks_by_kernels) {
    sets.push_back(base::str("rank ", base::joined(ranks), ": ", kernels));
  }
  throw UsageError(base::str("[rank ", world.rank(), " of ", world.size(),
                             "] ranks do not compute alike: their kernels gave different bits on "
                             "one input.\n  ",
                             base::joined(sets, "; "),
                             "\n  Start all ranks with ATEN_CPU_CAPABILITY=avx2 "
                             "OPENBLAS_CORETYPE=Haswell ONEDNN_MAX_CPU_ISA=AVX2."));
}

double measure_gemm_peak(plan::ComputeType compute) {
  constexpr int64_t kSize = 384;
  const at::Tensor left = fixed_input({kSize, kSize}, "left");
  const at::Tensor right = fixed_input({kSize, kSize}, "right");
  double best = 0;
  for (const bool fused : {true, false}) {
    if (!fused && compute == plan::ComputeType::bf16) continue;
    const fused::Arithmetic arithmetic{.fused = fused, .compute = compute};
    const at::Tensor a = fused::operand(arithmetic, left), b = fused::operand(arithmetic, right);
    for (int i = 0; i < 12; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const at::Tensor result = fused::outputs(arithmetic, a, b, {});
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best = std::max(best, 2.0 * kSize * kSize * kSize / seconds);
    }
  }
  return best;
}

}  // namespace lockstep
