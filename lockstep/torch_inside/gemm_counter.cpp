#include "lockstep/torch_inside/gemm_counter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <mutex>
#include <string>

namespace lockstep::torch_inside {
namespace {

thread_local int64_t flops = 0;

void count(const at::Tensor& left, const at::Tensor& right) {
  flops += 2 * left.numel() * right.size(-1);  // left: (batch x) m x k; right: (batch x) k x n
}

// The operators that multiply: `linear`, `matmul` and all backward formulas end in one of them.
// Each counts and goes on to the kernel that it stands before. A batched product may run an
// in-place `addmm_` for each of its matrices; in-place forms stay as they are and are not counted
// again.

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
  count(a, b);
  return at::cpu::mm(a, b);
}

at::Tensor& mm_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  count(a, b);
  return at::cpu::mm_outf(a, b, out);
}

at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) {
  count(a, b);
  return at::cpu::bmm(a, b);
}

at::Tensor& bmm_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  count(a, b);
  return at::cpu::bmm_outf(a, b, out);
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  count(a, b);
  return at::cpu::addmm(self, a, b, beta, alpha);
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                      const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  count(a, b);
  return at::cpu::addmm_outf(self, a, b, beta, alpha, out);
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  count(a, b);
  return at::cpu::baddbmm(self, a, b, beta, alpha);
}

at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                        const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  count(a, b);
  return at::cpu::baddbmm_outf(self, a, b, beta, alpha, out);
}

/// LibTorch warns of each kernel that takes another one's place; here that is the purpose.
struct Silence final : c10::WarningHandler {
  void process(const c10::SourceLocation&, const std::string&, bool) override {}
};

}  // namespace

void install_gemm_counter() {
  static std::once_flag once;
  std::call_once(once, [] {
    Silence silence;
    const c10::Warning::WarningHandlerGuard guard(&silence);
    // Never destroyed: that would take the kernels out again while others may run.
    auto* const kernels =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    kernels->impl("mm", &mm);
    kernels->impl("mm.out", &mm_out);
    kernels->impl("bmm", &bmm);
    kernels->impl("bmm.out", &bmm_out);
    kernels->impl("addmm", &addmm);
    kernels->impl("addmm.out", &addmm_out);
    kernels->impl("baddbmm", &baddbmm);
    kernels->impl("baddbmm.out", &baddbmm_out);
  });
}

int64_t gemm_flops_of_this_thread() { return flops; }

void add_gemm_flops(int64_t done) { flops += done; }

}  // namespace lockstep::torch_inside
