/// What differs between two models or checkpoints, element by element, whatever files and layouts
/// hold them.
///
/// Of two checkpoints of Lockstep everything is compared that a run goes on from: parameters,
/// moments, average, running values and the state beside them. Else the weights are. Values are
/// compared as they lie there and not proven: what a damaged file changes is seen, too
/// (Reader::verify proves).
///
/// Moves   every byte of both once, as far as both have a tensor     Holds   512 Ki elements
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::checkpoints {

/// A tensor in which bits differ.
struct TensorDifference {
  std::string kind;  // as in manifest.h
  std::string name;
  int64_t numel = 0;
  int64_t elements = 0;  // that differ; 0 and -0 do
  /// |a - b|, and the same over the larger of |a| and |b|. Infinite where one is not a finite
  /// number.
  double largest_absolute = 0;
  double largest_relative = 0;
  int64_t first = 0;  // element that differs
  float first_a = 0;
  float first_b = 0;
};

/// Something else that differs; empty where one has it not.
struct OtherDifference {
  std::string what;  // a key of the settings, a part of the state, a tensor
  std::string a;
  std::string b;
};

struct Difference {
  std::string path_a;  // what was read for it: of a run the checkpoint or file
  std::string path_b;
  std::string kind_a;  // "checkpoint of Lockstep", ...
  std::string kind_b;
  std::vector<TensorDifference> tensors;  // by kind and name
  std::vector<OtherDifference> shapes;    // tensors of one alone, or of other shapes
  std::vector<OtherDifference> state;     // what else a run goes on from
  std::vector<OtherDifference> settings;  // they do not make two checkpoints differ
  int64_t compared_tensors = 0;
  int64_t compared_elements = 0;

  bool equal() const { return tensors.empty() && shapes.empty() && state.empty(); }
};

/// Of checkpoints, runs (their newest checkpoint), and all that open_weights takes. Throws
/// StateError naming path and reason.
Difference compare(const std::string& a, const std::string& b);

}  // namespace lockstep::checkpoints
