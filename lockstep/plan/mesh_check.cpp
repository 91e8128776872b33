#include "lockstep/plan/mesh_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

/// Places from outside in. Data parallelism, not told apart, is anything from replica to shard.
struct AxisOrder {
  const char* name;
  int outermost;
  int innermost;
};
constexpr std::array<AxisOrder, 6> kOrder = {
    {{"replica", 0, 0}, {"dp", 0, 2}, {"pp", 1, 1}, {"shard", 2, 2}, {"cp", 3, 3}, {"tp", 4, 4}}};

const AxisOrder* order_of(const std::string& axis) {
  const auto found = std::find_if(kOrder.begin(), kOrder.end(),
                                  [&](const AxisOrder& order) { return order.name == axis; });
  return found == kOrder.end() ? nullptr : found;
}

bool belongs_inside(const std::string& axis, const std::string& other) {
  const AxisOrder* inner = order_of(axis);
  const AxisOrder* outer = order_of(other);
  return inner != nullptr && outer != nullptr && inner->outermost > outer->innermost;
}

/// What a link of `level` leaves behind: a link inside a host crosses packages.
std::string crossed_by(LinkLevel level) {
  LOCKSTEP_ASSERT(level > LinkLevel::cache, "inside a cache nothing is crossed");
  return base::str(name_of(kLinkLevels[static_cast<size_t>(level) - 1]), "s");
}

std::string group_text(const std::vector<int>& group) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < group.size(); ++i) {
    const bool skipped = group.size() > kShown && i >= 2 && i + 1 < group.size();
    if (skipped && i > 2) continue;
    text += base::str(i == 0 ? "" : ", ", skipped ? "..." : std::to_string(group[i]));
  }
  return "{" + text + "}";
}

std::string speed_text(const Link& link) {
  return base::str("(", link.bytes_per_second / 1e9, " GB/s", link.assumed ? ", assumed)" : ")");
}

/// An axis of a mesh on a placement.
struct LaidAxis {
  std::string name;
  int size = 1;
  int stride = 1;          // between neighbours of a group
  std::vector<int> group;  // the first of those on the slowest link
  LinkLevel slowest = LinkLevel::cache;

  /// Ranks from the first to the last of a group, those of the axes inside it included.
  int block() const { return size * stride; }
};

/// The slowest level of groups of `size` ranks, each `stride` after the one before, and one of
/// them.
std::pair<LinkLevel, std::vector<int>> slowest_group(const Placement& placement, int size,
                                                     int stride) {
  std::pair<LinkLevel, std::vector<int>> slowest;
  for (int first = 0; first < placement.ranks(); ++first) {
    if (first / stride % size != 0) continue;
    std::vector<int> group;
    for (int i = 0; i < size; ++i) group.push_back(first + i * stride);
    const LinkLevel level = slowest_level(placement, group).value_or(LinkLevel::cache);
    if (slowest.second.empty() || placement.topology.is_slower(level, slowest.first)) {
      slowest = {level, group};
    }
  }
  return slowest;
}

std::vector<LaidAxis> lay(const Placement& placement, const Mesh& mesh) {
  std::vector<LaidAxis> axes;
  int stride = mesh.world();
  for (const MeshAxis& axis : mesh.axes()) {
    stride /= axis.size;
    if (axis.size == 1) continue;
    auto [level, group] = slowest_group(placement, axis.size, stride);
    axes.push_back({axis.name, axis.size, stride, std::move(group), level});
  }
  return axes;
}

/// The most ranks that sit in one cache, package or host.
int most_ranks_inside(const Placement& placement, LinkLevel level) {
  std::map<std::tuple<int, int, int>, int> counts;
  int most = 0;
  for (const Seat& seat : placement.seats) {
    const int package = level <= LinkLevel::package ? seat.package : 0;
    const int cache = level == LinkLevel::cache ? seat.cache : 0;
    most = std::max(most, ++counts[{seat.host, package, cache}]);
  }
  return most;
}

LinkLevel innermost_with_room(const Placement& placement, int ranks) {
  for (const LinkLevel level : {LinkLevel::cache, LinkLevel::package, LinkLevel::host}) {
    if (most_ranks_inside(placement, level) >= ranks) return level;
  }
  return LinkLevel::network;
}

/// The largest part of the axis whose groups all stay on links of `asks`; 1 if no part does.
int size_that_fits(const Placement& placement, const LaidAxis& axis, LinkLevel asks) {
  for (int size = axis.size - 1; size > 1; --size) {
    if (axis.size % size != 0) continue;
    const LinkLevel level = slowest_group(placement, size, axis.stride).first;
    if (!placement.topology.is_slower(level, asks)) return size;
  }
  return 1;
}

/// The mesh with each axis outside of those that belong inside it; what may stay in place does.
std::vector<MeshAxis> ordered(const Mesh& mesh) {
  std::vector<MeshAxis> left = mesh.axes();
  std::vector<MeshAxis> axes;
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const MeshAxis& axis) {
      return std::none_of(left.begin(), left.end(), [&](const MeshAxis& other) {
        return belongs_inside(axis.name, other.name);
      });
    });
    axes.push_back(*next);
    left.erase(next);
  }
  return axes;
}

MeshWarning warning(const Placement& placement, const LaidAxis& axis, LinkLevel asks) {
  return {.axis = axis.name,
          .group = axis.group,
          .crosses = axis.slowest,
          .asks = asks,
          .what = base::str(axis.name, " group ", group_text(axis.group), " crosses ",
                            crossed_by(axis.slowest), " ",
                            speed_text(placement.topology.link(axis.slowest)), " while "),
          .help = {},
          .placing = {}};
}

/// `axis` has slower links than `outer`, which belongs outside of it.
MeshWarning inverted(const Placement& placement, const Mesh& mesh, const LaidAxis& axis,
                     const LaidAxis& outer) {
  MeshWarning made = warning(placement, axis, outer.slowest);
  made.what +=
      base::str(outer.name, ", which asks for less, stays inside a ", name_of(outer.slowest), " ",
                speed_text(placement.topology.link(outer.slowest)));
  made.help = base::str("order the axes from outside in: \"", spelled(ordered(mesh)), "\"");
  return made;
}

MeshWarning outside(const Placement& placement, const LaidAxis& axis, LinkLevel asks) {
  MeshWarning made = warning(placement, axis, asks);
  const bool has_room = innermost_with_room(placement, axis.block()) <= asks;
  made.what += has_room ? base::str("a ", name_of(asks), " has room for its block of ",
                                    axis.block(), " ranks")
                        : base::str(axis.name, " asks for links inside a ", name_of(asks));
  const int size = size_that_fits(placement, axis, asks);
  if (size > 1 || !has_room) {
    made.fitting_size = size;
    made.help = base::str("use ", axis.name, "=", size);
  }
  if (has_room) {
    made.placing =
        base::str("place a multiple of ", axis.block(), " ranks in each ", name_of(asks));
    made.help += (made.help.empty() ? "" : ", or ") + made.placing;
  }
  return made;
}

}  // namespace

std::vector<MeshWarning> check_mesh(const Placement& placement, const Mesh& mesh) {
  LOCKSTEP_ASSERT(placement.ranks() == mesh.world(), "a placement has a seat for each rank");
  const std::vector<LaidAxis> axes = lay(placement, mesh);
  const auto is_worse = [&](const LaidAxis& axis, LinkLevel asked) {
    return axis.slowest > asked && placement.topology.is_slower(axis.slowest, asked);
  };
  std::vector<MeshWarning> warnings;
  for (const LaidAxis& axis : axes) {
    const auto faster_outer = std::find_if(axes.begin(), axes.end(), [&](const LaidAxis& other) {
      return belongs_inside(axis.name, other.name) && is_worse(axis, other.slowest);
    });
    LinkLevel asks = innermost_with_room(placement, axis.block());
    if (axis.name == "tp") asks = std::min(asks, LinkLevel::host);
    if (faster_outer != axes.end()) {
      warnings.push_back(inverted(placement, mesh, axis, *faster_outer));
    } else if (is_worse(axis, asks)) {
      warnings.push_back(outside(placement, axis, asks));
    }
  }
  return warnings;
}

}  // namespace lockstep::plan
