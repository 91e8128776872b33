/// All parameter bytes of a rank. Whole, they are one flat fp32 buffer, laid out by the bucket
/// plan: the module's tensors are views of it, so what the optimizer writes is what the next
/// forward reads. Divided (zero3), this rank holds its shards, and units are gathered for their use
/// (state/gathered_units.h).
///
/// Start values are drawn here, from the parameter's name and the element's logical index: every
/// rank draws its own without a broadcast, no cut of the parameters changes a draw, and a model
/// larger than a rank is never whole on one.
///
/// A tied parameter is stored once. Each of its uses is a leaf tensor of its own on the same
/// storage, with a gradient of its own (state/grad_store.h adds them).
///
/// Holds   4 bytes an element of `buckets().numel`; divided, of this rank's shards
///                                                       test: ParamStore.HoldsOnceWhatIsTied
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/plan/buckets.h"
#include "lockstep/plan/context_place.h"
#include "lockstep/plan/digest.h"
#include "lockstep/plan/param_table.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/state/gathered_units.h"

namespace lockstep::state {

struct ParamStoreOptions {
  uint64_t seed = 0;  // of the start values
  int64_t first_bucket_bytes = 1 * MiB;
  int64_t bucket_bytes = 25 * MiB;  // not with zero3, where each unit is a bucket
  plan::ShardOptions shard = {};
  /// The ranks that divide a replica: publishes and gathers. Null: nothing is divided.
  ProcessGroup* group = nullptr;
  /// With zero3: a folder for the file that shards and `moment_bytes` of the optimizer live in.
  std::string offload_folder = {};
  std::function<int64_t(int64_t elements)> moment_bytes = {};
  /// Of a model that ranks hold parts of: which pieces of logical parameters the module's tensors
  /// are, and in which chunk of the pipeline. Not set: it is whole.
  std::function<plan::TensorSlice(const std::string& path)> slice_of = {};
  std::function<int(const std::string& path)> chunk_of = {};
  bool is_part = false;  // of a pipeline: a tie may have its other use elsewhere
  /// The context grains of this rank, if it has several: each further one has tensors of its own
  /// for the parameters, at plan::context_path.
  plan::LeafRange contexts{0, 1};
};

class ParamStore {
 public:
  /// Takes over the parameters of `module`: afterwards they are views of this store, filled with
  /// their start values. `init_of` gives the draw of each parameter by its path in the module tree.
  /// Throws UsageError for a tie that does not fit, and for one tensor registered under two names
  /// without a declared tie.
  ParamStore(torch::nn::Module& module, const std::vector<plan::Tie>& ties,
             const std::function<plan::Init(const std::string&)>& init_of,
             const ParamStoreOptions& options);

  const plan::ParamTable& table() const { return table_; }
  const plan::BucketPlan& buckets() const { return buckets_; }
  const plan::ShardLayout& layout() const { return layout_; }

  /// The fp32 master of a parameter, contiguous; where parameters are not divided.
  float* master(int param);
  const float* master(int param) const;
  /// The same of a piece that this rank owns, in memory.
  float* master(const plan::Piece& piece);
  /// Elements of the parameter, in or of a piece that this rank holds, wherever they are. Between
  /// steps; what is written is this rank's until it is published.
  void read_piece(const plan::Piece& piece, float* into);
  void write_piece(const plan::Piece& piece, const float* from);
  /// What this rank holds of the parameters that are not trained.
  std::vector<plan::Piece> fixed_pieces() const;
  /// Where a piece begins in the file, in bytes.
  int64_t master_at(const plan::Piece& piece) const;
  /// The file of shards and moments; null where they are in memory.
  ShardFile* file() const { return file_.get(); }
  /// Calls `see` with the values of each piece that this rank owns, wherever they are.
  void for_each_piece(const std::vector<plan::Piece>& pieces,
                      const std::function<void(const plan::Piece&, const float*)>& see) const;
  /// The place among the ranks that divide a replica.
  int rank() const { return rank_; }
  /// What this rank owns and updates.
  const std::vector<plan::Piece>& pieces() const { return pieces_; }

  /// A parameter's values wherever they are, until the next call. All ranks of the group call it
  /// for the same parameters in the same order, outside of any step; it may gather.
  const float* whole(int param);
  /// What `whole` has gathered is freed.
  void release_whole();

  /// Begins to give the updated shards of a bucket to every rank; with zero1 and zero2.
  [[nodiscard]] Work publish(int bucket);

  /// The divided parameters; null where they are whole.
  GatheredUnits* units() const { return units_.get(); }

  /// The leaf tensor of use `use` (index in Param::uses) of a parameter; of several context grains
  /// the first one's.
  const at::Tensor& use(int param, int use) const {
    return uses_[static_cast<size_t>(param)][static_cast<size_t>(use * contexts_.size())];
  }

  /// The same by parameter and use, for each use its context grains.
  const std::vector<std::vector<at::Tensor>>& uses() const { return uses_; }

  /// Of all parameters; where they are divided, of what this rank owns: the sum over the ranks of a
  /// replica is the model's. `counts`: without parameters that another part of the model counts.
  plan::Digest digest(const std::function<bool(int param)>& counts = {}) const;
  int64_t bytes() const;

 private:
  bool divided() const { return units_ != nullptr; }
  void take_over(const std::map<std::string, at::Tensor>& by_path, uint64_t seed);
  void fill_shards(uint64_t seed);
  std::vector<std::string> paths_of(const plan::Param& param) const;
  int64_t in_shard(const plan::Piece& piece) const;

  ProcessGroup* group_;
  plan::ParamTable table_;
  plan::BucketPlan buckets_;
  plan::ShardLayout layout_;
  int rank_ = 0;                          // that owns `pieces_`
  std::vector<plan::Piece> pieces_;       // of trained parameters
  at::Tensor flat_;                       // trained parameters, by slot
  at::Tensor fixed_;                      // parameters that are not trained
  std::vector<int64_t> fixed_offset_;     // by parameter, -1 for trained ones
  std::unique_ptr<ShardFile> file_;       // of the units' shards, if they are offloaded
  std::unique_ptr<GatheredUnits> units_;  // in the place of the two
  int whole_unit_ = -1;                   // gathered by `whole`
  plan::LeafRange contexts_;
  std::vector<std::vector<at::Tensor>> uses_;  // by parameter, by use in name order
};

}  // namespace lockstep::state
