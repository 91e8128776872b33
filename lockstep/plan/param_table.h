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

/// One parameter as the module tree declares it.
struct ParamDeclaration {
  std::string name;  // dotted path in the module tree
  std::vector<int64_t> shape;
  bool trainable = true;
  Init init;
};

/// "`use` is another use of the parameter `of`": same storage, its own gradient.
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
  /// What is gathered together with it (shard_layout.h); by its paths if nobody says.
  std::optional<std::string> unit = {};
};

struct ParamTable {
  std::vector<Param> params;  // in the order of the module tree
  std::vector<int> by_name;   // indices of `params` in name order: norms and digests use it

  int64_t numel() const;
  int find(const std::string& name) const;  // -1: not there
};

/// Throws UsageError for a name that comes twice, a tie to an unknown or itself tied parameter, or
/// a tie between different shapes.
ParamTable make_param_table(const std::vector<ParamDeclaration>& declared,
                            const std::vector<Tie>& ties);

}  // namespace lockstep::plan
