/// Parameters that are divided among ranks: this rank's shards of all units, and the units that are
/// gathered for the moment.
///
/// A module's tensors are views of unit buffers whose storage comes and goes. An operator that
/// takes one of them tells `on_touch` first, which sees to it that the unit is gathered.
///
///   released --gather--> gathering --await--> ready --release--> released
///
/// Shards may live in a file (shard_file.h): a gather then reads this rank's shard first, and the
/// one of the unit that is likely to follow is read ahead.
///
/// Moves   a gather: each rank reads the other ranks' shards of the unit
/// Holds   4 bytes an element of this rank's shards in the shared heap, and of gathered units; with
///         a file, of the shards that are being gathered and one more
/// test    GatheredUnits.*
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/state/shard_file.h"
#include "lockstep/torch_inside/first_touch.h"

namespace lockstep::state {

class GatheredUnits {
 public:
  /// `group` has the layout's ranks in order, and makes the gathers. Shards are in `file`, or in
  /// memory if it is null. `layout` and `file` must outlive this.
  GatheredUnits(const plan::ShardLayout& layout, ProcessGroup& group, ShardFile* file = nullptr);
  ~GatheredUnits();

  /// A tensor that stands for the parameter, for Tensor::set_data.
  at::Tensor parameter(int param, at::IntArrayRef shape) const;

  /// This rank's shard of a unit, of the trained or the other part, contiguous; in memory only.
  float* shard(int unit, bool trained) const;
  bool in_file() const { return file_ != nullptr; }
  /// Elements [lo, hi) of this rank's shard of a unit, trained part first, wherever they are.
  /// Between gathers; they wait.
  void read_shard(int unit, int64_t lo, int64_t hi, float* into);
  void write_shard(int unit, int64_t lo, int64_t hi, const float* from);
  /// Before shards change in the file: what was read ahead is old then.
  void drop_read_ahead();
  /// The trained part as a tensor; all are views of one storage.
  const at::Tensor& shard_tensor(int unit) const {
    return units_[static_cast<size_t>(unit)].trained;
  }
  /// A parameter's elements, while its unit is ready.
  const float* gathered(int param) const;

  /// All ranks call these in the same order. Gathering what is gathered already is a mistake.
  void gather(int unit);
  /// The unit is gathered now. Called by a touch, or by a rank that has nothing to compute.
  void await(int unit);
  void release(int unit);
  bool released(int unit) const;

  /// Called when an operator comes to a unit that is not ready, in its thread; afterwards the unit
  /// is awaited. Without one such an operator is refused: a UsageError names the unit.
  void on_touch(std::function<void(int unit)> touched) { touched_ = std::move(touched); }

  /// Called whenever an operator takes a parameter, before it does, in its thread; may gather and
  /// release.
  void on_use(std::function<void(int unit)> used) { used_ = std::move(used); }

  /// The most units besides the root that were gathered or gathering at once.
  int most_gathered() const { return most_gathered_; }
  int64_t gathers() const { return gathers_; }

 private:
  struct Unit {
    std::unique_ptr<torch_inside::ReleasableStorage> storage;
    at::Tensor trained;  // this rank's shard
    at::Tensor frozen;
    std::vector<Work> works;
    at::Tensor staged;  // this rank's shard while it is here, if shards are in a file
    files::BlockFile::Ticket read;
    bool gathered = false;  // or under way
    bool ready = false;
  };

  void touch(int unit);
  int64_t owned_numel(int unit) const;
  void begin_read(int unit);
  void stage(int unit);
  void read_ahead(int unit);

  const plan::ShardLayout& layout_;
  ProcessGroup& group_;
  ShardFile* file_;
  at::Tensor shards_;  // of all units, in the shared heap
  int last_gathered_ = -1;
  int ahead_ = -1;  // unit whose shard is being read ahead
  std::vector<Unit> units_;
  std::function<void(int)> touched_;
  std::function<void(int)> used_;
  int gathered_ = 0;  // besides the root
  int most_gathered_ = 0;
  int64_t gathers_ = 0;
};

}  // namespace lockstep::state
