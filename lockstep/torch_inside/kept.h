/// What a function of the graph keeps from forward to backward besides tensors that it saves.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace lockstep::torch_inside {

template <class T>
struct Kept final : torch::CustomClassHolder {
  explicit Kept(T what) : value(std::move(what)) {}
  T value;
};

template <class T>
void keep(torch::autograd::AutogradContext& context, T value) {
  context.saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}

template <class T>
const T& kept(torch::autograd::AutogradContext& context) {
  const auto capsule = context.saved_data.at("kept").toCapsule();
  return static_cast<const Kept<T>&>(*capsule).value;  // the context holds it too
}

}  // namespace lockstep::torch_inside
