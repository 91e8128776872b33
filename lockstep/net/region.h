/// Where everything lies in a region.
#pragma once

#include <chrono>
#include <memory>

#include "lockstep/net/control.h"
#include "lockstep/net/world.h"

namespace lockstep::net {

struct Region::Impl {
  char* base = nullptr;
  int64_t bytes = 0;
  int descriptor = -1;
  int ranks = 0;
  int64_t heap_bytes = 0;

  ~Impl();

  JobHeader& header() const { return *reinterpret_cast<JobHeader*>(base); }
  RankControl& control(int rank) const;
  GroupLines& lines(int rank, int group) const;
  /// The channel of `rank` to and from the `peer`-th member of `group`.
  Channel& channel(int rank, int group, int peer, Lane lane) const;
  char* heap(int rank) const;
  /// The rank of the job that this one waits for in a call, for longer than a moment; -1: none.
  int waits_for(int rank) const;
  bool contains(const void* data, int64_t size) const {
    const auto* at = static_cast<const char*>(data);
    return at >= base && size <= bytes && at - base <= bytes - size;
  }
};

/// The steady clock, which all processes of a host read alike.
inline int64_t steady_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// "all_reduce of 100 float32 (sum)"
std::string describe(Operation operation, int64_t count, DType type, ReduceOp reduce_op, int root);

}  // namespace lockstep::net
