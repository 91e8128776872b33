#include "tests/fuzz/target.h"

#include <algorithm>
#include <cstring>

namespace lockstep::fuzz {
namespace {

std::vector<Target>& list() {
  static std::vector<Target> targets;  // made on first use: targets are added before main
  return targets;
}

}  // namespace

std::vector<Target> targets() {
  std::vector<Target> sorted = list();
  std::sort(sorted.begin(), sorted.end(),
            [](const Target& a, const Target& b) { return std::strcmp(a.name, b.name) < 0; });
  return sorted;
}

bool add(Target target) {
  list().push_back(target);
  return true;
}

}  // namespace lockstep::fuzz
