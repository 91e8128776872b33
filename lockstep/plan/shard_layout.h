/// Which runs of parameters each rank owns, and which are gathered and freed together: one value
/// for the runtime, checkpoints and the planner.
///
/// A replica's ranks divide every unit among them. Cuts lie on multiples of 256 elements inside a
/// parameter, or between two: no chunk of a norm is divided (norm_chunks.h), and shares differ by
/// less than two chunks. A rank's share of a unit may be empty.
///
///   unit "h.0" on 3 ranks   |ln_1|    c_attn.weight    |  c_proj.weight |
///                           |---- rank 0 ---|---- rank 1 ---|-- rank 2 -|
///
/// none, zero1, zero2   units are the buckets of gradients; parameters that are not trained are
///                      whole on every rank
/// zero3                a unit is a layer of a list ("h.3"); the root is what is in no list. Each
///                      is a bucket, too; parameters that are not trained are divided apart
///
/// Source  Rajbhandari et al. 2020, "ZeRO", SC20; docs/concepts/zero.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/plan/buckets.h"
#include "lockstep/plan/sum_plan.h"

namespace lockstep::plan {

/// What data-parallel ranks divide: nothing, the optimizer's state, gradients too, parameters too.
enum class Shard { none, zero1, zero2, zero3 };
Shard parse_shard(const std::string& name);

/// Which units are freed after forward: all but those that backward needs at once, all, none.
enum class Reshard { automatic, always, never };
Reshard parse_reshard(const std::string& name);

struct ShardOptions {
  Shard stage = Shard::none;
  int ranks = 1;     // that divide a replica
  int replicas = 1;  // groups of ranks that each hold all shards
  int prefetch = 1;  // units gathered ahead of their use
  Reshard reshard = Reshard::automatic;
};

/// The unit that a parameter belongs to by its path: up to its first part that is a number.
/// "h.3" for "h.3.attn.c_attn.weight"; "" for "wte.weight": the root.
std::string unit_of(const std::string& path);
/// The unit of a parameter: the one it was given; else that of all its uses, the root if they are
/// in several.
std::string unit_of(const Param& param);

/// One bucket a unit, in the order of backward: last unit first, the root last.
BucketPlan plan_unit_buckets(const ParamTable& table);

/// Where a parameter lies in its unit's buffer.
struct UnitSlot {
  int unit = -1;  // -1: in none, whole on every rank
  int64_t offset = 0;
  int64_t numel = 0;
};

struct ShardUnit {
  std::string name;             // its path in the module tree; "" is the root
  int bucket = -1;              // of its gradients; -1: nothing in it is trained
  std::vector<int> params;      // trained ones first
  int64_t numel = 0;            // padding included
  int64_t trained = 0;          // elements of the part that is trained, which comes first
  std::vector<int64_t> cuts;    // rank r owns elements cuts[r] to cuts[r + 1] of the trained part
  std::vector<int64_t> frozen;  // the same of the rest, from the start of the unit
};

/// A run of one parameter's elements that one rank owns.
struct Piece {
  int param = -1;
  int64_t lo = 0;  // elements of the parameter
  int64_t hi = 0;
  int unit = -1;
  int64_t in_unit = 0;  // where it begins in the unit's buffer
  int64_t size() const { return hi - lo; }
  auto operator<=>(const Piece&) const = default;
};

struct ShardLayout {
  ShardOptions options;
  std::vector<ShardUnit> units;  // unit b is that of bucket b; units without a bucket follow
  std::vector<UnitSlot> slots;   // by parameter
  std::vector<int> forward;      // units in the order of their first use, the root first

  bool sharded() const { return options.stage != Shard::none; }
  bool gathers() const { return options.stage == Shard::zero3; }
  /// Elements of each rank, of the trained or the other part of a unit.
  std::vector<int64_t> counts(int unit, bool trained = true) const;
  /// The elements of a unit's buffer that `rank` owns, of the same.
  ElementRange owned(int unit, int rank, bool trained = true) const;
  /// What `rank` owns, by unit, in the order of their buffers.
  std::vector<Piece> pieces(int rank, bool trained = true) const;
  /// Elements that `rank` owns in all units.
  int64_t owned_numel(int rank, bool trained = true) const;
  /// The root, which stays gathered while units inside it come and go; -1: there is none.
  int root() const;
};

/// `buckets` are plan_unit_buckets' with zero3. `options.ranks` 1 and no sharding: every rank owns
/// all.
ShardLayout plan_shards(const ParamTable& table, const BucketPlan& buckets,
                        const ShardOptions& options);

/// What is done with units during one micro-batch.
struct UnitStep {
  enum class Op {
    gather,   // begins
    touch,    // the computation has come to the unit: what follows waits for that
    release,  // its buffer is freed
  };
  Op op;
  int unit;
  auto operator<=>(const UnitStep&) const = default;
};

/// At most prefetch + 1 units are gathered at a time, besides the root. With zero3, else empty.
/// `backward_follows`: what the reshard policy keeps for backward stays.
std::vector<UnitStep> forward_units(const ShardLayout& layout, bool backward_follows);
std::vector<UnitStep> backward_units(const ShardLayout& layout);

}  // namespace lockstep::plan
