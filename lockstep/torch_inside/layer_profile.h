/// Where the time of training steps goes: by module of any torch::nn::Module, forward and backward.
///
/// Every operator that LibTorch runs in this thread, every autograd node and every mark
/// (layer_scope.h) is a frame on a stack. A frame's own time, without the frames inside it, is
/// added to one row; so the rows' times add up to the step's, and what no mark covers is a row too.
///
///   forward    an operator on a parameter belongs to the module that registered it; any other to
///              the innermost LayerScope, else to the model ("")
///   backward   an autograd node belongs to the layer whose forward made it: the operator with its
///              sequence number, or the function in C++ whose forward used one layer's parameters;
///              else the LayerScope that was open at that number
///
/// Bytes are the sizes of the tensors that outermost operators took and gave (an operator that only
/// views its input gives none); operations are those of matrix products (gemm_counter.h).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/torch_inside/layer_scope.h"

namespace lockstep::torch_inside {

struct ProfileRow {
  std::string module;  // path in the module tree; empty: the model as a whole
  Phase phase = Phase::other;
  double seconds = 0;
  int64_t flops = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t calls = 0;  // outermost operators but views; in backward autograd nodes
};

class LayerProfile {
 public:
  /// Learns which parameter belongs to which module. They must keep their tensors.
  explicit LayerProfile(const torch::nn::Module& model);
  ~LayerProfile();

  /// Around each step, in the thread that runs it. Nothing is watched outside.
  void begin_step();
  void end_step();

  int64_t steps() const;
  /// Of all steps together; the rows' sum.
  double seconds() const;
  std::vector<ProfileRow> rows() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::torch_inside
