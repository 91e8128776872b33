/// What a call's arguments must fulfil, found before any byte is sent.
///
/// Every message names rank, operation, group, the numbers at odds, and what to do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::detail {

class CallCheck {
 public:
  CallCheck(const net::Group& group, const char* operation)
      : group_(group), operation_(operation) {}

  /// `x` is a dense, contiguous CPU tensor with memory and a type that collectives carry.
  net::DType tensor(const at::Tensor& x, const char* name) const;

  void same_type(const at::Tensor& in, const at::Tensor& out) const;
  void reducible(const at::Tensor& x, ReduceOp op) const;
  void rank_in_group(int rank, const char* name) const;
  void other_rank(int rank, const char* name) const;

  /// One count a rank, none negative, `total` in all.
  void counts(const std::vector<int64_t>& counts, const char* name, int64_t total,
              const char* tensor_name) const;
  void own_count(const std::vector<int64_t>& counts, int64_t numel, const char* tensor_name) const;

  /// `whole` holds a slice as large as `slice` for every rank.
  void divides(int64_t whole, const char* whole_name, int64_t slice, const char* slice_name,
               const char* uneven_call) const;

  void apart(const at::Tensor& in, const at::Tensor& out) const;
  /// `in` is apart from `out`, or exactly the part of it that begins at element `first`.
  void own_part_or_apart(const at::Tensor& in, const at::Tensor& out, int64_t first) const;

  /// Sorts `terms` by leaf. They are disjoint nodes of the tree over `leaves`, each of `count`
  /// elements of the type of `result`. Each is apart from `result`, or holds it from element
  /// `own_first` on, where nobody else reads.
  net::DType terms(std::vector<LeafTerm>& terms, int leaves, int64_t count,
                   const at::Tensor& result, int64_t own_first = 0) const;

  [[noreturn]] void fail(const std::string& what, const std::string& advice) const;

 private:
  const net::Group& group_;
  const char* operation_;
};

}  // namespace lockstep::detail
