/// Modules that are built without memory for their parameters: for models larger than a rank, whose
/// values are drawn later, by name, where they belong.
///
///   const auto net = torch_inside::deferred([&] { return std::make_shared<Net>(settings); });
///
/// While the function runs, `torch::empty` of a floating-point type gives this thread a tensor that
/// has a shape and no memory, and in-place operators on such a tensor (the initialisers of
/// torch::nn) do nothing. Other ways to make a tensor are as ever: a buffer from torch::zeros keeps
/// its values, and a parameter from torch::randn takes memory until it is replaced. Reading one
/// without memory is a mistake that LibTorch finds late, if at all: what computes its start values
/// from other parameters cannot be built this way.
#pragma once

#include <functional>
#include <utility>

namespace lockstep::torch_inside {

class DeferredParameters {
 public:
  DeferredParameters();
  ~DeferredParameters();
  DeferredParameters(const DeferredParameters&) = delete;
  DeferredParameters& operator=(const DeferredParameters&) = delete;

 private:
  bool before_;
};

template <class Make>
auto deferred(Make make) {
  const DeferredParameters scope;
  return make();
}

}  // namespace lockstep::torch_inside
