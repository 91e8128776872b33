/// What stands behind FullyShard: how a module's parameters become shards, and what is done with
/// their gradients after each backward.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/state/gathered_units.h"
#include "lockstep/state/grad_store.h"
#include "lockstep/train/detail/shard_norm.h"
#include "lockstep/train/detail/unit_flow.h"
#include "lockstep/train/fully_shard.h"
#include "lockstep/train/replicas.h"

namespace lockstep::detail {

struct ShardedModule {
  ShardedModule(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<ProcessGroup> group,
                const FullyShardOptions& options);

  // ---- set-up ----

  void read_parameters();
  void compare_ranks();
  void plan_layout();
  void take_over();
  void make_shards();
  void make_gradients();

  // ---- values ----

  void remember_versions();
  void require_unwritten(int unit);
  at::Tensor whole(const std::string& path);

  // ---- a synchronized backward ----

  void backward(const at::Tensor& loss, const at::Tensor& gradient, bool retain_graph);
  void require_same_trained() const;
  void begin_reductions();
  void keep_gradients_apart();
  void reduce_ready(int bucket);
  void finish();
  void agree();
  void reduce_late();
  void hand_out();
  at::Tensor slice_of(size_t shard) const;
  const float* gradient(const plan::Piece& piece) const;

  const std::shared_ptr<torch::nn::Module> module;
  const std::shared_ptr<ProcessGroup> group;
  const FullyShardOptions options;

  std::vector<NamedTensor> parameters;      // by parameter of the table
  std::map<std::string, int> by_path;       // all paths
  std::vector<uint32_t> versions;           // by parameter: of the module's tensor
  std::shared_ptr<ProcessGroup> gathering;  // lanes of their own: neither order is the other's
  std::shared_ptr<ProcessGroup> reducing;

  plan::ParamTable table;
  plan::BucketPlan buckets;
  plan::ShardLayout layout;
  std::vector<plan::Piece> pieces;  // of trained parameters, this rank's

  std::unique_ptr<state::GatheredUnits> units;
  std::unique_ptr<UnitFlow> flow;
  std::unique_ptr<torch_inside::WatchedWrites> writes;  // to shards
  std::unique_ptr<state::GradStore> grads;
  std::unique_ptr<ShardNorm> norm;

  /// Where a shard lies in its unit's.
  struct Place {
    int unit = 0;
    int64_t offset = 0;
    int64_t numel = 0;
  };
  std::vector<OwnShard> shards;
  std::vector<Place> places;  // by shard

  enum class State { closed, running };
  State state = State::closed;
  bool local = false;         // inside no_sync
  bool fresh = true;          // no gradient has arrived since the last reduction
  std::vector<int> sequence;  // of buckets, in which all ranks reduce them
  std::vector<bool> ready;    // by bucket
  size_t next = 0;            // place in `sequence`
  int64_t reductions = 0;
};

}  // namespace lockstep::detail
