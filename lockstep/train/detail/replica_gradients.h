/// What stands behind DistributedDataParallel: the gradients of a module's replicas, one store a
/// type, and the passes in which they are filled, reduced and agreed upon.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/state/grad_store.h"
#include "lockstep/train/ddp_options.h"
#include "lockstep/train/detail/agreement.h"
#include "lockstep/train/replicas.h"

namespace lockstep::detail {

/// The trained parameters of one type and their gradients. One leaf a rank: the mean of ranks is
/// the sum of leaves, divided.
struct TypedGradients {
  plan::ParamTable table;
  plan::BucketPlan buckets;
  std::vector<std::vector<at::Tensor>> uses;
  std::unique_ptr<state::GradStore> store;
};

/// A bucket of one of the stores, in the order in which all ranks reduce them.
struct BucketPlace {
  TypedGradients* gradients = nullptr;
  int bucket = 0;
  bool ready = false;
};

struct ReplicaGradients {
  ReplicaGradients(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<ProcessGroup> group,
                   const DdpOptions& options);

  enum class State {
    closed,   // no backward: gradients that arrive are refused
    local,    // inside no_sync
    reducing  // in backward
  };

  // ---- set-up ----

  void make_gradients(at::ScalarType type);

  // ---- a synchronized backward ----

  void open(bool last);
  void count_once(TypedGradients& typed) const;
  void reduce_ready(TypedGradients& gradients, int bucket);
  void finish();
  void agree();
  void refuse_unused();
  void reduce_late();
  void require_promise_kept();
  ReduceOp operation() const;
  void correct(at::Tensor averaged) const;
  void require_same_trained();
  /// A reduction of zeros beside those of the ranks that still have data.
  void take_part();
  std::vector<std::string> unused() const;
  bool any_late() const;

  // ---- join ----

  /// Says whether this rank has data, and learns who has. Sets `divisor` and `root`.
  bool exchange_live(bool mine);

  const std::shared_ptr<torch::nn::Module> module;
  const std::shared_ptr<ProcessGroup> group;
  const DdpOptions options;

  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  std::vector<bool> trained;                               // by parameter
  std::vector<std::unique_ptr<TypedGradients>> gradients;  // by type
  std::vector<BucketPlace> places;

  State state = State::closed;
  bool fresh = true;           // no gradient has arrived since the last reduction
  bool usage_known = false;    // static_graph: the first backward has agreed
  bool holds_reduced = false;  // `.grad` may be what the last backward reduced
  size_t next = 0;             // place to be reduced next
  std::vector<Work> works;     // of places before `next`
  int64_t reductions = 0;

  std::optional<JoinDivisor> joining;
  double divisor = 1;
  int root = 0;  // whose buffers all take
};

}  // namespace lockstep::detail
