/// Every logical parameter of a model, once: what optimizer, clip, digest, checkpoint and planner
/// read. Made once from the module tree; a tied weight is one parameter with several uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::plan {

/// How a parameter's start values are drawn: keyed by its name and the element's logical index.
struct Init {
  enum class Kind { zeros, ones, normal };
  Kind kind = Kind::zeros;
  double std = 0;  // of `normal`
  bool operator==(const Init&) const = default;
};

/// A tensor grain of a parameter: of each of the blocks that its direction `dim` consists of, the
/// grain-th of `grains` equal runs. What lies behind the logical parameter's end is padding, which
/// nobody sees.
///
///   c_attn (3D, D), dim 0, blocks D D D, grain 1 of 2:   |q0 Q1|k0 K1|v0 V1|   its rows Q1 K1 V1
///   wte (V, D), dim 0, one block of V rounded up to a multiple of the grains
struct TensorSlice {
  std::string logical;         // the parameter's name; empty: the tensor is the whole parameter
  std::vector<int64_t> shape;  // of the logical parameter
  int dim = 0;
  std::vector<int64_t> blocks;  // their sizes along `dim`, padding included; multiples of `grains`
  int grain = 0;
  int grains = 1;
  bool operator==(const TensorSlice&) const = default;
};

/// One parameter as the module tree declares it.
struct ParamDeclaration {
  std::string name;  // dotted path in the module tree
  std::vector<int64_t> shape;
  bool trainable = true;
  Init init;
  TensorSlice slice = {};
  int chunk = 0;  // of the pipeline, on its stage
};

/// "`use` is another use of the parameter `of`": same storage, its own gradient. Where a pipeline
/// has only one of the two on a stage, each stage holds the parameter and knows of the other use.
struct Tie {
  std::string use;
  std::string of;
  bool operator==(const Tie&) const = default;
};

struct Param {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel = 0;
  bool trainable = true;
  bool decay = false;  // weight decay applies: two or more dimensions
  Init init;
  std::vector<std::string> uses;  // dotted paths, in name order; gradients are added in this order
  std::vector<std::string> elsewhere = {};  // uses that other stages have; they join the same order
  TensorSlice slice = {};
  std::vector<int> use_chunks = {0};  // of the pipeline, by use
  /// Its uses lie in several chunks or stages: a leaf's gradient is whole only when all are there.
  bool is_across = false;
  int chunk() const { return use_chunks.front(); }
  /// What is gathered together with it (shard_layout.h); by its paths if nobody says.
  std::optional<std::string> unit = {};
};

/// Elements lo <= i < hi of a parameter's tensor are elements first, first + 1, ... of the logical
/// parameter; first -1: padding.
struct LogicalRun {
  int64_t lo = 0;
  int64_t hi = 0;
  int64_t first = 0;
  int64_t size() const { return hi - lo; }
  auto operator<=>(const LogicalRun&) const = default;
};

/// The runs that elements lo <= i < hi consist of, in rising order.
std::vector<LogicalRun> logical_runs(const Param& param, int64_t lo, int64_t hi);
/// The name that start values, digest and checkpoints know.
const std::string& logical_name(const Param& param);
const std::vector<int64_t>& logical_shape(const Param& param);

struct ParamTable {
  std::vector<Param> params;  // in the order of the module tree
  std::vector<int> by_name;   // indices of `params` in name order: norms and digests use it

  int64_t numel() const;
  int find(const std::string& name) const;  // -1: not there
};

/// Throws UsageError for a name that comes twice, a tie to an unknown or itself tied parameter, a
/// tie between different shapes, or a slice that does not give its tensor's shape. `is_part`: of a
/// pipeline's stage; a tie of which it has one use makes a parameter with uses elsewhere, under the
/// name that it has in the whole model.
ParamTable make_param_table(const std::vector<ParamDeclaration>& declared,
                            const std::vector<Tie>& ties, bool is_part = false);

}  // namespace lockstep::plan
