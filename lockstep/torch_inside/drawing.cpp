#include "lockstep/torch_inside/drawing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/library.h>

#include <mutex>
#include <utility>

namespace lockstep::torch_inside {
namespace {

// Stands before every other key, in threads that ask for it only.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local Drawing* drawing_here = nullptr;

bool is_generator(const c10::TypePtr& type) {
  const auto* const optional = type->castRaw<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

/// Every operator of a thread with a Drawing comes by here; those that would draw from the
/// process's generator are given the copy. What an operator calls in turn comes by as well: the key
/// is taken off this call, not off the thread.
void hand_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (drawing_here == nullptr || !is_generator(arguments[i].type())) continue;
    c10::IValue& value = torch::jit::peek(*stack, i, arguments.size());
    if (value.isNone()) value = drawing_here->generator();
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&hand_generator>());
}

at::CPUGeneratorImpl& engine_of(const at::Generator& generator) {
  return *at::check_generator<at::CPUGeneratorImpl>(generator);
}

bool same_place(const at::Generator& a, const at::Generator& b) {
  const at::mt19937_data_pod left = engine_of(a).engine().data();
  const at::mt19937_data_pod right = engine_of(b).engine().data();
  return left.left_ == right.left_ && left.next_ == right.next_ && left.state_ == right.state_ &&
         engine_of(a).next_float_normal_sample() == engine_of(b).next_float_normal_sample() &&
         engine_of(a).next_double_normal_sample() == engine_of(b).next_double_normal_sample();
}

void move_to(const at::Generator& generator, const at::Generator& place) {
  engine_of(generator).set_engine(engine_of(place).engine());
  engine_of(generator).set_next_float_normal_sample(engine_of(place).next_float_normal_sample());
  engine_of(generator).set_next_double_normal_sample(engine_of(place).next_double_normal_sample());
}

}  // namespace

Drawing::Drawing() : outer_(std::exchange(drawing_here, this)), again_(false), operators_(kKey) {}

Drawing::Drawing(const at::Generator& start)
    : outer_(std::exchange(drawing_here, this)), again_(true), start_(start), operators_(kKey) {}

Drawing::~Drawing() {
  if (!again_ && copy_.defined()) put_back();
  drawing_here = outer_;
}

const at::Generator& Drawing::generator() {
  if (copy_.defined()) return copy_;
  if (!start_.defined()) {
    if (outer_ != nullptr) {
      start_ = outer_->generator().clone();
    } else {
      at::Generator all = at::detail::getDefaultCPUGenerator();
      const std::lock_guard<std::mutex> lock(all.mutex());
      start_ = all.clone();
    }
  }
  copy_ = start_.clone();
  return copy_;
}

void Drawing::put_back() const {
  if (outer_ != nullptr) {
    move_to(outer_->generator(), copy_);
    return;
  }
  at::Generator all = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(all.mutex());
  if (same_place(all, start_)) move_to(all, copy_);
}

}  // namespace lockstep::torch_inside
