/// Activation recompute (gradient checkpointing): a function whose intermediate tensors are not
/// kept for backward but computed again there.
///
///   auto y = lockstep::checkpoint([block](const at::Tensor& x) mutable { return block(x); }, x);
///
/// Holds   its inputs and outputs between forward and backward; what it computes in between only
///         while it runs, and in backward from its second run to the end of its own backward
/// Costs   one more run of the function
/// Order   outputs and gradients have the bits of the plain function, whatever it draws: from
///         LibTorch's generator (drawing.h) or from counters. Two exceptions add up in another
///         order: a parameter that several functions share, where its .grad holds something
///         already, and an input with two further uses or more outside. Under autocast a weight
///         that the function uses twice is cast twice
/// Source  Chen et al. 2016, arXiv:1604.06174;  docs/concepts/recompute.md
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::torch_inside {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// `checkpoint` with lists for arguments and result.
std::vector<at::Tensor> checkpoint_list(TensorFunction fn, const std::vector<at::Tensor>& inputs);

/// Whether this thread is in the second run of a function, whose backward comes next: what was
/// fetched for it need not be let go. False in the first run of a function inside it, which has its
/// own second run to come.
bool recomputing();

/// How a result is taken apart into tensors and put together again: a tensor, a vector of them, or
/// a tuple, pair or array of such, as LibTorch's modules return. A vector stands alone.
template <class T>
struct Parts;

template <>
struct Parts<at::Tensor> {
  static void take_apart(const at::Tensor& whole, std::vector<at::Tensor>& list) {
    list.push_back(whole);
  }
  static at::Tensor put_together(const std::vector<at::Tensor>& list, size_t& next) {
    return list[next++];
  }
};

template <>
struct Parts<std::vector<at::Tensor>> {
  static void take_apart(const std::vector<at::Tensor>& whole, std::vector<at::Tensor>& list) {
    list.insert(list.end(), whole.begin(), whole.end());
  }
  static std::vector<at::Tensor> put_together(const std::vector<at::Tensor>& list, size_t& next) {
    return {list.begin() + static_cast<std::ptrdiff_t>(std::exchange(next, list.size())),
            list.end()};
  }
};

template <class Tuple, class... Elements>
struct PartsOfTuple {
  static_assert(!(std::is_same_v<Elements, std::vector<at::Tensor>> || ...),
                "return one vector of tensors, or a tuple without vectors");
  static void take_apart(const Tuple& whole, std::vector<at::Tensor>& list) {
    std::apply([&](const auto&... part) { (Parts<Elements>::take_apart(part, list), ...); }, whole);
  }
  static Tuple put_together(const std::vector<at::Tensor>& list, size_t& next) {
    return Tuple{Parts<Elements>::put_together(list, next)...};  // braces: from left to right
  }
};

template <class... Elements>
struct Parts<std::tuple<Elements...>> : PartsOfTuple<std::tuple<Elements...>, Elements...> {};

template <class First, class Second>
struct Parts<std::pair<First, Second>> : PartsOfTuple<std::pair<First, Second>, First, Second> {};

template <size_t N>
struct Parts<std::array<at::Tensor, N>> {
  static void take_apart(const std::array<at::Tensor, N>& whole, std::vector<at::Tensor>& list) {
    list.insert(list.end(), whole.begin(), whole.end());
  }
  static std::array<at::Tensor, N> put_together(const std::vector<at::Tensor>& list, size_t& next) {
    std::array<at::Tensor, N> whole;
    for (at::Tensor& part : whole) part = list[next++];
    return whole;
  }
};

}  // namespace lockstep::torch_inside

namespace lockstep {

/// `fn(inputs...)` without its graph; backward runs it again. Without grad mode: just the call.
///
/// fn      a function of tensors: a tensor, a vector of tensors, or a tuple, pair or array. It is
///         kept until the graph is gone, with all that it captures, and computes the same each
///         time. It may use parameters of any module and call `checkpoint` itself; other tensors of
///         the graph must be inputs
/// inputs  tensors of any type, with gradient or without, defined or not. Where none has a gradient
///         fn's parameters still get theirs
/// throws  what fn throws, then and in backward. UsageError: fn changes an input in place, or
/// returns
///         something else in its second run. In backward, UsageError: fn uses a tensor of the graph
///         that is no input; second derivatives are asked for, or gradients by
///         torch::autograd::grad, which would miss those of fn's parameters
template <class Fn, class... Inputs>
requires(std::is_convertible_v<const Inputs&, at::Tensor>&&...) auto checkpoint(
    Fn fn, const Inputs&... inputs) {
  auto call = [fn = std::move(fn)]<size_t... I>(const std::vector<at::Tensor>& list,
                                                std::index_sequence<I...>) mutable {
    return fn(list[I]...);
  };
  using Index = std::index_sequence_for<Inputs...>;
  using Result = std::decay_t<decltype(call(std::declval<std::vector<at::Tensor>>(), Index{}))>;
  const std::vector<at::Tensor> outputs = torch_inside::checkpoint_list(
      [call = std::move(call)](const std::vector<at::Tensor>& list) mutable {
        std::vector<at::Tensor> parts;
        torch_inside::Parts<Result>::take_apart(call(list, Index{}), parts);
        return parts;
      },
      {inputs...});
  size_t next = 0;
  return torch_inside::Parts<Result>::put_together(outputs, next);
}

/// The same with a list of inputs.
template <class Fn>
auto checkpoint(Fn fn, const std::vector<at::Tensor>& inputs) {
  using Result = std::decay_t<std::invoke_result_t<Fn&, const std::vector<at::Tensor>&>>;
  const std::vector<at::Tensor> outputs = torch_inside::checkpoint_list(
      [fn = std::move(fn)](const std::vector<at::Tensor>& list) mutable {
        std::vector<at::Tensor> parts;
        torch_inside::Parts<Result>::take_apart(fn(list), parts);
        return parts;
      },
      inputs);
  size_t next = 0;
  return torch_inside::Parts<Result>::put_together(outputs, next);
}

}  // namespace lockstep
