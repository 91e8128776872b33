#include "lockstep/torch_inside/deferred.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>

namespace lockstep::torch_inside {
namespace {

// The key that LibTorch keeps for this: a thread includes it as a whole, above autograd.
constexpr c10::DispatchKey kKey = c10::DispatchKey::DeferredInit;

bool has_no_memory(const c10::IValue& value) {
  if (!value.isTensor()) return false;
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() && tensor.has_storage() && tensor.numel() > 0 &&
         tensor.storage().nbytes() == 0;
}

bool is_floating_or_default(const c10::IValue& type) {
  return type.isNone() || c10::isFloatingType(type.toScalarType());
}

void operate(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard passed{c10::DispatchKeySet(kKey)};
  const c10::FunctionSchema& schema = op.schema();
  const size_t arguments = schema.arguments().size();
  const auto argument = [&](size_t index) -> c10::IValue& {
    return (*stack)[stack->size() - arguments + index];
  };
  if (schema.name() == "aten::empty" && schema.overload_name() == "memory_format" &&
      is_floating_or_default(argument(1))) {
    const std::vector<int64_t> shape = argument(0).toIntVector();
    argument(0) = std::vector<int64_t>{0};
    op.callBoxed(stack);
    stack->back().toTensor().unsafeGetTensorImpl()->set_sizes_contiguous(shape);
    return;
  }
  if (arguments > 0 && schema.name().ends_with('_') && has_no_memory(argument(0))) {
    const c10::IValue self = argument(0);
    stack->resize(stack->size() - arguments);
    stack->push_back(self);
    return;
  }
  op.callBoxed(stack);
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* const library =
        new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&operate>());
  });
}

}  // namespace

DeferredParameters::DeferredParameters() {
  install();
  before_ = c10::impl::tls_is_dispatch_key_included(kKey);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

DeferredParameters::~DeferredParameters() {
  c10::impl::tls_set_dispatch_key_included(kKey, before_);
}

}  // namespace lockstep::torch_inside
