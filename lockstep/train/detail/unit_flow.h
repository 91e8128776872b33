/// Gathers the units of a module that a user's own loop computes with, and frees them: on demand
/// when an operator comes to one, ahead of that once the order is known.
///
/// At most prefetch + 1 units besides the root are gathered at a time; only an operator that takes
/// parameters of several units holds them all until it is done. The root stays from its first use
/// to the end of backward.
///
/// Values that were gathered before the shards were written to are never used.
///
/// Order   gathers are issued in the computation's own order. With each travels its unit's number:
///         ranks that came to different units end in a CommError before the data are used
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/state/gathered_units.h"
#include "lockstep/train/detail/unit_order.h"

namespace lockstep::detail {

class UnitFlow {
 public:
  struct Options {
    int prefetch = 1;
    bool reshard_after_forward = true;
  };
  /// `before_release` is called while a unit still has its values, `changed` when units were freed
  /// because shards were written to.
  UnitFlow(const plan::ShardLayout& layout, state::GatheredUnits& units, ProcessGroup& group,
           const Options& options, std::function<void(int unit)> before_release,
           std::function<void()> changed);
  ~UnitFlow();

  void begin_backward();
  void end_backward();
  /// Frees what is gathered.
  void release_all();
  /// An operator writes to shards: what is gathered is old from the next operator on.
  void shards_are_written();
  /// Frees what is old; every use does so by itself.
  void drop_old();

  /// The unit is there until the next release.
  void fetch(int unit);

  /// Units in the order in which they were last gathered outside of backward, the last first, the
  /// root behind them: alike on all ranks, and near the order in which backward comes to them.
  std::vector<int> last_gathered_first() const;

 private:
  void use(int unit);
  void gather(int unit);
  void finish(int unit);
  void release(int unit);
  void make_room(int unit, const std::vector<int>& ahead, uint64_t operators);

  struct Unit {
    at::Tensor came;           // which unit each rank has come to, of a gather under way
    std::optional<Work> told;  // by all of them
    uint64_t used_by = 0;      // operator
    bool kept = false;         // for backward
    int64_t gathered = -1;     // the number of its last gather outside of backward
  };

  const plan::ShardLayout& layout_;
  state::GatheredUnits& units_;
  ProcessGroup& group_;
  const Options options_;
  const std::function<void(int)> before_release_;
  const std::function<void()> changed_;
  const int root_;
  UnitOrder order_;
  std::vector<Unit> flow_;  // by unit
  int current_ = -1;        // besides the root
  bool backward_ = false;
  int64_t gathers_ = 0;
  std::optional<uint64_t> written_by_;  // operator
};

}  // namespace lockstep::detail
