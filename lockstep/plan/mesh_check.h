/// Does a mesh fit the links under it? Groups of an inner axis talk more, so they belong on faster
/// links: axes from outside in are `replica pp shard cp tp`, with dp = replica x shard.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/mesh.h"
#include "lockstep/plan/topology.h"

namespace lockstep::plan {

/// An axis with a group on a slower link than its place asks for.
struct MeshWarning {
  std::string axis;
  std::vector<int> group;  // the first of those on the slowest link
  LinkLevel crosses = LinkLevel::network;
  LinkLevel asks = LinkLevel::host;
  std::string what;
  std::string help;
  int fitting_size =
      0;                // of the axis: a part of it that stays where it belongs; 0: none is advised
  std::string placing;  // the part of `help` that changes no mesh
};

/// At most one warning for each axis, from outside in. An axis asks
/// - for links no slower than those of any axis that belongs outside of it;
/// - inside a host, if it is tp, whose groups wait for each other in every layer;
/// - inside a cache, package or host if one has room for its block, the ranks from the first to the
///   last of a group: then a group outside is one that lies across a boundary for no need.
/// `placement` has a slot for each rank of `mesh`.
std::vector<MeshWarning> check_mesh(const Placement& placement, const Mesh& mesh);

}  // namespace lockstep::plan
