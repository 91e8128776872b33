#include "lockstep/train/frozen.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/name_pattern.h"
#include "lockstep/plan/context_place.h"

namespace lockstep {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    const size_t first = part.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    parts.push_back(part.substr(first, part.find_last_not_of(' ') + 1 - first));
  }
  return parts;
}

/// A grain is a part of what its name says before the mark.
std::string without_grain(const std::string& path) { return path.substr(0, path.find('@')); }

/// Names of the parameters that this rank's paths are of.
class LogicalNames {
 public:
  explicit LogicalNames(Task& task) : task_(task) {
    for (const plan::Tie& tie : task.ties()) {
      owner_[without_grain(tie.use)] = without_grain(tie.of);
    }
  }

  std::string of(const std::string& path) const {
    const std::string slice = task_.slice_of(path).logical;
    const std::string name = slice.empty() ? path : slice;
    const auto tied = owner_.find(name);
    return tied == owner_.end() ? name : tied->second;
  }

 private:
  Task& task_;
  std::map<std::string, std::string> owner_;
};

/// Further context grains of a rank have a tree of their own for the same parameters.
std::string first_grain_path(const std::string& path, const RankContext& context) {
  if (!plan::is_further_grain(context.sequence.local, path)) return path;
  return path.substr(path.find('.', path.find('.') + 1) + 1);
}

bool fits_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return optim::name_fits(pattern, name); });
}

std::set<std::string> names_of_all(const std::set<std::string>& mine, ProcessGroup& world) {
  std::string lines;
  for (const std::string& name : mine) lines += name + "\n";
  std::set<std::string> all;
  for (const std::string& of_rank : world.gather_text(lines)) {
    for (std::string& name : split(of_rank, '\n')) all.insert(std::move(name));
  }
  return all;
}

void check(const std::vector<std::string>& patterns, const std::set<std::string>& names) {
  for (const std::string& pattern : patterns) {
    const bool fits = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return optim::name_fits(pattern, name);
    });
    if (fits) continue;
    const std::string near = base::nearest(pattern, {names.begin(), names.end()});
    throw UsageError(base::str("optim.frozen: no parameter of the model has the name \"", pattern,
                               "\".",
                               near.empty() ? base::str(" Its names are as \"", *names.begin(),
                                                        "\"; * stands for any ", "characters.")
                                            : base::str(" Did you mean \"", near, "\"?")));
  }
  const bool all_frozen = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return fits_any(patterns, name);
  });
  if (all_frozen) {
    throw UsageError("optim.frozen takes in every parameter: nothing is left to train.");
  }
}

}  // namespace

void freeze(Task& task, const std::string& patterns_text, const RankContext& context) {
  const std::vector<std::string> patterns = split(patterns_text, ',');
  if (patterns.empty()) return;
  const LogicalNames logical(task);
  std::map<std::string, std::string> name_of;  // by path
  std::set<std::string> mine;
  for (const auto& item : task.module().named_parameters()) {
    const std::string name = logical.of(first_grain_path(item.key(), context));
    name_of[item.key()] = name;
    mine.insert(name);
  }
  check(patterns, names_of_all(mine, *context.world));
  for (const auto& item : task.module().named_parameters()) {
    if (fits_any(patterns, name_of.at(item.key()))) item.value().set_requires_grad(false);
  }
}

}  // namespace lockstep
