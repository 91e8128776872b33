/// The ranks of a job as a grid: axes from outside in, the last axis running fastest.
///
///   Mesh::parse("dp=2 tp=2", 4)      dp\tp   0  1
///                                      0     0  1     rank = 2 * dp + tp
///                                      1     2  3
#pragma once

#include <string>
#include <vector>

namespace lockstep::plan {

struct MeshAxis {
  std::string name;
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};

/// "dp=2 tp=2": what Mesh::parse reads.
std::string spelled(const std::vector<MeshAxis>& axes);

class Mesh {
 public:
  /// Throws UsageError if a name comes twice or a size is below 1.
  explicit Mesh(std::vector<MeshAxis> axes);

  /// "dp=2 tp=2", sizes in any number; one size may be -1: what the world leaves. Throws UsageError
  /// if the product is not `world`, naming the sizes, the product and the nearest that fits.
  static Mesh parse(const std::string& text, int world);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int world() const;
  int size(const std::string& axis) const;  // 1 for an axis that is not there

  /// This rank's index along `axis`.
  int index(int rank, const std::string& axis) const;
  std::vector<int> coordinates(int rank) const;
  int rank_at(const std::vector<int>& coordinates) const;

  /// The ranks that differ from `rank` along `axes` only, in mesh order: the members of its group.
  std::vector<int> group_of(int rank, const std::vector<std::string>& axes) const;

 private:
  std::vector<MeshAxis> axes_;
};

}  // namespace lockstep::plan
