#include "lockstep/torch_inside/gemm_counter.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <mutex>
#include <string_view>

namespace lockstep::torch_inside {
namespace {

thread_local int64_t flops = 0;

// The operators that multiply: `linear`, `matmul` and all backward formulas end in one of them. A
// batched product may run an in-place `addmm_` for each of its matrices; that is not counted again.
// Returns the place of the left factor among the arguments; -1: not a product.
int first_factor(std::string_view name) {
  if (name == "aten::mm" || name == "aten::bmm") return 0;
  if (name == "aten::addmm" || name == "aten::baddbmm") return 1;
  return -1;
}

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  const int first = first_factor(call.name());
  if (first < 0) return nullptr;
  const auto inputs = call.inputs();
  const at::Tensor& left = inputs[first].toTensor();
  const at::Tensor& right = inputs[first + 1].toTensor();
  flops += 2 * left.numel() * right.size(-1);  // left: (batch x) m x k; right: (batch x) k x n
  return nullptr;
}

}  // namespace

void install_gemm_counter() {
  static std::once_flag once;
  std::call_once(once, [] {
    at::addGlobalCallback(
        at::RecordFunctionCallback(&count).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  });
}

int64_t gemm_flops_of_this_thread() { return flops; }

}  // namespace lockstep::torch_inside
