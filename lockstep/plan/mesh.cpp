#include "lockstep/plan/mesh.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

constexpr int kRest = -1;  // "what the world leaves"

std::string text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> words;
  for (const MeshAxis& axis : axes) words.push_back(base::str(axis.name, "=", axis.size));
  return base::joined(words, ", ");
}

MeshAxis parse_axis(const std::string& word, const std::string& text) {
  const size_t equals = word.find('=');
  MeshAxis axis;
  if (equals != std::string::npos) {
    axis.name = word.substr(0, equals);
    const char* first = word.data() + equals + 1;
    const char* last = word.data() + word.size();
    const auto parsed = std::from_chars(first, last, axis.size);
    if (parsed.ec == std::errc() && parsed.ptr == last && !axis.name.empty()) return axis;
  }
  throw UsageError(base::str("mesh \"", text, "\": \"", word,
                             "\" is no axis.\n  Write NAME=SIZE with blanks between the axes, "
                             "outermost first: \"dp=2 tp=2\"."));
}

/// Finds the sizes with the product `world` whose distance from `asked` is smallest.
struct NearestSizes {
  const std::vector<MeshAxis>& asked;
  std::vector<int> best;
  int64_t best_distance = INT64_MAX;

  void search(int left, std::vector<int>& sizes, int64_t distance) {
    if (distance >= best_distance) return;
    const size_t at = sizes.size();
    if (at == asked.size()) {
      if (left != 1) return;
      best = sizes;
      best_distance = distance;
      return;
    }
    for (int size = 1; size <= left; ++size) {
      if (left % size != 0) continue;
      // The axis that takes the rest asks for no size of its own.
      const int off = asked[at].size == kRest ? 0 : std::abs(size - asked[at].size);
      sizes.push_back(size);
      search(left / size, sizes, distance + off);
      sizes.pop_back();
    }
  }
};

std::string count_of(int64_t count, const char* noun) {
  return base::str(count, " ", noun, count == 1 ? "" : "s");
}

/// `product` is that of the sizes given; no size that is left to the world makes it `world`.
[[noreturn]] void refuse(const std::vector<MeshAxis>& axes, int product, int world) {
  NearestSizes nearest{.asked = axes, .best = {}};
  std::vector<int> sizes;
  nearest.search(world, sizes, 0);
  std::vector<MeshAxis> fitting = axes;
  bool takes_rest = false;
  for (size_t i = 0; i < nearest.best.size(); ++i) {
    if (axes[i].size == kRest) {
      takes_rest = true;
    } else {
      fitting[i].size = nearest.best[i];
    }
  }
  const std::string mesh = axes.empty() ? "a mesh without axes" : "mesh " + text(axes);
  if (takes_rest) {
    throw UsageError(base::str(mesh, ": ", count_of(world, "rank"), " do not divide by ", product,
                               ".\n  Nearest that fits: \"", spelled(fitting),
                               "\". Or start a multiple of ", count_of(product, "rank"), "."));
  }
  throw UsageError(base::str(
      mesh, " has ", count_of(product, "place"), " for ", count_of(world, "rank"), ".\n  ",
      axes.empty() ? base::str("Name an axis of size ", world)
                   : base::str("Nearest that fits: \"", spelled(fitting), "\""),
      ", or start ", count_of(product, "rank"), "."));
}

}  // namespace

std::string spelled(const std::vector<MeshAxis>& axes) {
  std::string line;
  for (const MeshAxis& axis : axes) {
    line += base::str(line.empty() ? "" : " ", axis.name, "=", axis.size);
  }
  return line;
}

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  std::set<std::string> names;
  int product = 1;
  for (const MeshAxis& axis : axes_) {
    if (!names.insert(axis.name).second) {
      throw UsageError(base::str("mesh ", text(axes_), ": the axis \"", axis.name,
                                 "\" comes twice.\n  Give each axis once."));
    }
    if (axis.size < 1) {
      throw UsageError(base::str("mesh ", text(axes_), ": the axis \"", axis.name, "\" has size ",
                                 axis.size, ".\n  Set it to 1 or more."));
    }
    if (__builtin_mul_overflow(product, axis.size, &product)) {
      throw UsageError(base::str("mesh ", text(axes_), " has more places than ranks can be."));
    }
  }
}

Mesh Mesh::parse(const std::string& text, int world) {
  LOCKSTEP_ASSERT(world >= 1, "a job has at least one rank");
  std::vector<MeshAxis> axes;
  std::istringstream words(text);
  for (std::string word; words >> word;) axes.push_back(parse_axis(word, text));

  const auto takes_rest = [](const MeshAxis& axis) { return axis.size == kRest; };
  if (std::count_if(axes.begin(), axes.end(), takes_rest) > 1) {
    throw UsageError(base::str("mesh \"", text,
                               "\": two axes have size -1, and the world cannot be shared out "
                               "between them.\n  Give all but one a size."));
  }
  const auto rest = std::find_if(axes.begin(), axes.end(), takes_rest);
  std::vector<MeshAxis> sized = axes;
  if (rest != axes.end()) sized[static_cast<size_t>(rest - axes.begin())].size = 1;
  const int product = Mesh(sized).world();

  if (rest != axes.end() && world % product == 0) {
    rest->size = world / product;
  } else if (rest != axes.end() || product != world) {
    refuse(axes, product, world);
  }
  return Mesh(std::move(axes));
}

int Mesh::world() const {
  int product = 1;
  for (const MeshAxis& axis : axes_) product *= axis.size;
  return product;
}

int Mesh::size(const std::string& axis) const {
  for (const MeshAxis& candidate : axes_) {
    if (candidate.name == axis) return candidate.size;
  }
  return 1;
}

int Mesh::index(int rank, const std::string& axis) const {
  const std::vector<int> place = coordinates(rank);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return place[i];
  }
  return 0;
}

std::vector<int> Mesh::coordinates(int rank) const {
  LOCKSTEP_ASSERT(0 <= rank && rank < world(), "no such rank in the mesh");
  std::vector<int> place(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    place[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return place;
}

int Mesh::rank_at(const std::vector<int>& coordinates) const {
  LOCKSTEP_ASSERT(coordinates.size() == axes_.size(), "a place has one index for each axis");
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    LOCKSTEP_ASSERT(0 <= coordinates[i] && coordinates[i] < axes_[i].size,
                    "an index lies inside its axis");
    rank = rank * axes_[i].size + coordinates[i];
  }
  return rank;
}

std::vector<int> Mesh::group_of(int rank, const std::vector<std::string>& axes) const {
  const auto varies = [&](size_t i) {
    return std::find(axes.begin(), axes.end(), axes_[i].name) != axes.end();
  };
  // Starts at the group's lowest rank and counts through the axes that vary, the last one fastest.
  std::vector<int> place = coordinates(rank);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (varies(i)) place[i] = 0;
  }
  std::vector<int> members;
  for (bool more = true; more;) {
    members.push_back(rank_at(place));
    more = false;
    for (size_t i = axes_.size(); i-- > 0 && !more;) {
      if (!varies(i)) continue;
      more = place[i] + 1 < axes_[i].size;
      place[i] = more ? place[i] + 1 : 0;
    }
  }
  return members;
}

}  // namespace lockstep::plan
