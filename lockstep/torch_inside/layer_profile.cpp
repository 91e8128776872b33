#include "lockstep/torch_inside/layer_profile.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/torch_inside/gemm_counter.h"

namespace lockstep::torch_inside {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kModel = 0;  // the path ""

struct Frame {
  int path = kModel;
  Phase phase = Phase::other;
  bool is_operator = false;
  bool outermost = false;  // an operator that no other one called
  Clock::time_point start;
  double inner_seconds = 0;
  int64_t flops_at_start = 0;
  int64_t inner_flops = 0;
  int64_t bytes_read = 0;
  std::vector<const void*> read = {};  // storages of an outermost operator's inputs
};

template <class Use>
void for_each_tensor(c10::ArrayRef<const c10::IValue> values, const Use& use) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) use(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (tensor.defined()) use(tensor);
      }
    }
  }
}

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

struct LayerProfile::Impl {
  /// Sequence numbers that autograd gave out while a layer's mark was open.
  struct Span {
    int64_t lo = 0;
    int64_t hi = 0;
    int path = kModel;
  };

  int path_of(std::string_view name) {
    const auto [found, is_new] = paths.try_emplace(std::string(name), rows.size());
    if (is_new) {
      rows.emplace_back();
      for (size_t phase = 0; phase < kPhases; ++phase) {
        rows.back()[phase] = {.module = std::string(name), .phase = static_cast<Phase>(phase)};
      }
    }
    return static_cast<int>(found->second);
  }

  ProfileRow& row_of(const Frame& frame) {
    return rows[static_cast<size_t>(frame.path)][static_cast<size_t>(frame.phase)];
  }

  void push(int path, Phase phase) {
    stack.push_back({.path = path,
                     .phase = phase,
                     .start = Clock::now(),
                     .flops_at_start = gemm_flops_of_this_thread()});
  }

  void pop() {
    const Frame frame = std::move(stack.back());
    stack.pop_back();
    const double lasted = std::chrono::duration<double>(Clock::now() - frame.start).count();
    const int64_t counted = gemm_flops_of_this_thread() - frame.flops_at_start;
    ProfileRow& row = row_of(frame);
    row.seconds += lasted - frame.inner_seconds;
    row.flops += counted - frame.inner_flops;
    if (stack.empty()) {
      seconds += lasted;
    } else {
      stack.back().inner_seconds += lasted;
      stack.back().inner_flops += counted;
    }
  }

  void enter_operator(const at::RecordFunction& call) {
    const Frame& outer = stack.back();
    if (std::string_view(call.name()).starts_with("autograd::")) {  // around a node and its hooks
      push(outer.path, outer.phase);
      return;
    }
    int path = outer.path;
    const bool outermost = !outer.is_operator;
    if (outermost && outer.phase == Phase::forward) {
      bool is_layers = false;
      for_each_tensor(call.inputs(), [&](const at::Tensor& tensor) {
        const auto found = modules.find(tensor.unsafeGetTensorImpl());
        if (found == modules.end()) return;
        path = found->second;
        is_layers = true;
      });
      if (is_layers && !at::GradMode::is_enabled()) name_open_function(path);
    }
    if (outer.phase == Phase::forward && call.seqNr() >= 0) made_by[call.seqNr()] = path;
    push(path, outer.phase);
    Frame& frame = stack.back();
    frame.is_operator = true;
    frame.outermost = outermost;
    if (!outermost) return;
    for_each_tensor(call.inputs(), [&](const at::Tensor& tensor) {
      frame.bytes_read += bytes_of(tensor);
      frame.read.push_back(storage_of(tensor));
    });
  }

  /// A function in C++ took its number before its forward, in which nothing is recorded. It belongs
  /// to the layer whose parameter its forward uses; where those are of several layers, to its mark.
  void name_open_function(int path) {
    const auto number = static_cast<int64_t>(at::sequence_number::peek()) - 1;
    if (number < functions_from) return;
    if (std::exchange(named_function, number) != number) {
      made_by[number] = path;
    } else if (const auto found = made_by.find(number);
               found != made_by.end() && found->second != path) {
      made_by.erase(found);
    }
  }

  void enter_node(const at::RecordFunction& call) {
    const Frame& outer = stack.back();
    push(layer_of(call.seqNr(), outer.path), outer.phase);
    ++row_of(stack.back()).calls;
  }

  int layer_of(int64_t sequence_number, int otherwise) const {
    if (const auto found = made_by.find(sequence_number); found != made_by.end()) {
      return found->second;
    }
    // Marks are noted when they close, inner ones first.
    for (const Span& span : spans) {
      if (span.lo <= sequence_number && sequence_number < span.hi) return span.path;
    }
    return otherwise;
  }

  void leave_operator(const at::RecordFunction& call) {
    const Frame& frame = stack.back();
    if (frame.outermost) {
      ProfileRow& row = row_of(frame);
      const std::string_view name(call.name());
      int64_t written = 0;
      bool only_views = !name.ends_with('_');
      for_each_tensor(
          c10::ArrayRef<const c10::IValue>(call.outputs().data(), call.outputs().size()),
          [&](const at::Tensor& tensor) {
            written += bytes_of(tensor);
            const bool is_input = std::find(frame.read.begin(), frame.read.end(),
                                            storage_of(tensor)) != frame.read.end();
            if (!is_input) only_views = false;
          });
      if (!only_views) {
        row.bytes_read += frame.bytes_read;
        row.bytes_written += written;
        if (frame.phase != Phase::backward) ++row.calls;
      }
      if (at::GradMode::is_enabled()) note_numbers();
    }
    pop();
  }

  /// What operators have taken so far. The next is free: one that took none has no node.
  void note_numbers() {
    functions_from = static_cast<int64_t>(at::sequence_number::peek());
    made_by.erase(functions_from);
  }

  std::unordered_map<std::string, size_t> paths;
  std::vector<std::array<ProfileRow, kPhases>> rows;        // by path
  std::unordered_map<const c10::TensorImpl*, int> modules;  // parameter -> path
  std::unordered_map<int64_t, int> made_by;                 // sequence number -> path
  int64_t functions_from = 0;   // numbers from here on were not taken by operators
  int64_t named_function = -1;  // the number that a layer was found for last
  std::vector<Span> spans;
  std::vector<int64_t> opened_at;  // of the open marks: the next sequence number then
  std::vector<Frame> stack;
  at::CallbackHandle callback = 0;
  int64_t steps = 0;
  double seconds = 0;
};

namespace {

thread_local LayerProfile::Impl* here = nullptr;  // between begin_step and end_step

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
  if (here == nullptr) return nullptr;
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    here->enter_node(call);
  } else {
    here->enter_operator(call);
  }
  return nullptr;
}

void leave(const at::RecordFunction& call, at::ObserverContext*) {
  if (here == nullptr) return;
  if (here->stack.back().is_operator) {
    here->leave_operator(call);
  } else {
    here->pop();
  }
}

}  // namespace

LayerProfile::LayerProfile(const torch::nn::Module& model) : impl_(std::make_unique<Impl>()) {
  LOCKSTEP_ASSERT(impl_->path_of("") == kModel, "the model is the first path");
  for (const auto& parameter : model.named_parameters()) {
    const size_t dot = parameter.key().rfind('.');
    const std::string module = dot == std::string::npos ? "" : parameter.key().substr(0, dot);
    impl_->modules[parameter.value().unsafeGetTensorImpl()] = impl_->path_of(module);
  }
}

LayerProfile::~LayerProfile() {
  if (here == impl_.get()) end_step();
}

void LayerProfile::begin_step() {
  LOCKSTEP_ASSERT(here == nullptr, "one profile a thread");
  impl_->made_by.clear();
  impl_->spans.clear();
  impl_->note_numbers();
  impl_->callback = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&enter, &leave)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  here = impl_.get();
  impl_->push(kModel, Phase::other);
}

void LayerProfile::end_step() {
  while (!impl_->stack.empty()) impl_->pop();  // more than one if the step failed
  at::removeCallback(impl_->callback);
  here = nullptr;
  ++impl_->steps;
}

int64_t LayerProfile::steps() const { return impl_->steps; }

double LayerProfile::seconds() const { return impl_->seconds; }

std::vector<ProfileRow> LayerProfile::rows() const {
  std::vector<ProfileRow> used;
  for (const auto& of_path : impl_->rows) {
    for (const ProfileRow& row : of_path) {
      if (row.seconds > 0 || row.calls > 0) used.push_back(row);
    }
  }
  return used;
}

LayerScope::LayerScope(std::string_view path) : open_(here != nullptr) {
  if (!open_) return;
  here->opened_at.push_back(static_cast<int64_t>(at::sequence_number::peek()));
  here->push(here->path_of(path), here->stack.back().phase);
}

LayerScope::~LayerScope() {
  if (!open_ || here == nullptr) return;
  const int path = here->stack.back().path;
  here->spans.push_back({.lo = here->opened_at.back(),
                         .hi = static_cast<int64_t>(at::sequence_number::peek()),
                         .path = path});
  here->opened_at.pop_back();
  here->pop();
}

PhaseScope::PhaseScope(Phase phase) : open_(here != nullptr) {
  if (open_) here->push(kModel, phase);
}

PhaseScope::~PhaseScope() {
  if (open_ && here != nullptr) here->pop();
}

}  // namespace lockstep::torch_inside
