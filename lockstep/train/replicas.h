/// Replicas of a module on the ranks of a group: are they alike, and make them so.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// A parameter or a buffer of a module, once, under the first of its names.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
std::vector<NamedTensor> parameters_of(const torch::nn::Module& module);
std::vector<NamedTensor> buffers_of(const torch::nn::Module& module);

/// Throws UsageError on every rank unless all ranks bring the same lines in the same order. The
/// message shows the first line that differs, as rank 0 and as the first unlike rank have it.
/// `what` is what the lines describe: "the module's parameters".
void require_same_lines(ProcessGroup& group, const std::string& what,
                        const std::vector<std::string>& lines);

/// `name` [shape] type, trained or frozen: a line a parameter, then a line a buffer.
std::vector<std::string> describe(const torch::nn::Module& module);

/// All ranks take rank `root`'s values.
void take_from(ProcessGroup& group, int root, const std::vector<NamedTensor>& tensors);

/// Throws CommError on every rank, naming the first tensor whose bits differ and the ranks whose
/// are not those of most (of two ranks nobody can tell), unless the replicas are equal.
void require_equal_bits(ProcessGroup& group, const std::vector<NamedTensor>& tensors);

}  // namespace lockstep
