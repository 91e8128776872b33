/// Runs a test's body on 1, 2, 3 and 4 ranks (threads).
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>

#include "lockstep/base/str.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::test {

/// The ranks outnumber the cores of a small machine: they sleep at once.
inline net::EndpointOptions options() {
  return {.timeout = std::chrono::milliseconds(20'000), .oversubscribed = true};
}

inline void on_ranks(std::initializer_list<int> sizes,
                     const std::function<void(ProcessGroup&)>& body) {
  for (const int size : sizes) {
    SCOPED_TRACE(base::str(size, " ranks"));
    net::run_on_threads(
        size,
        [&](const std::shared_ptr<net::Group>& world) {
          ProcessGroup group(world);
          body(group);
        },
        options());
  }
}

/// Element i of rank r's tensor: whole numbers, so that float sums are exact in any order.
inline at::Tensor numbers(int rank, int64_t count, at::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kLong) % 13 + 1 + rank).to(type);
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

/// A tensor in the group's heap with the contents of `x`.
inline at::Tensor in_heap(ProcessGroup& group, const at::Tensor& x) {
  at::Tensor y = group.allocate(x.sizes(), x.scalar_type());
  y.copy_(x);
  return y;
}

/// What `call` throws as an E; fails the test if it does not.
template <class E, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace lockstep::test
