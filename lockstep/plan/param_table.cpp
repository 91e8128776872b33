#include "lockstep/plan/param_table.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::plan {
namespace {

using DeclarationByName = std::map<std::string, const ParamDeclaration*>;

std::string text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + base::joined(sizes, /*last=*/", ") + "]";
}

int64_t numel_of(const ParamDeclaration& declared) {
  int64_t numel = 1;
  for (const int64_t size : declared.shape) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) {
      throw UsageError(base::str("parameter \"", declared.name, "\" has the shape ",
                                 text(declared.shape), ", which is no count of elements."));
    }
  }
  return numel;
}

DeclarationByName by_name(const std::vector<ParamDeclaration>& declared) {
  DeclarationByName found;
  for (const ParamDeclaration& declaration : declared) {
    if (!found.emplace(declaration.name, &declaration).second) {
      throw UsageError(base::str("two parameters are named \"", declaration.name,
                                 "\".\n  Give each its own name in the module tree."));
    }
  }
  return found;
}

const ParamDeclaration& declared_as(const DeclarationByName& declared, const std::string& name,
                                    const Tie& tie) {
  const auto found = declared.find(name);
  if (found == declared.end()) {
    std::vector<std::string> names;
    for (const auto& entry : declared) names.push_back(entry.first);
    const std::string near = base::nearest(name, names);
    throw UsageError(base::str("cannot tie \"", tie.use, "\" to \"", tie.of,
                               "\": there is no parameter \"", name, "\".",
                               near.empty() ? "" : "\n  Did you mean \"" + near + "\"?"));
  }
  return *found->second;
}

/// use -> the parameter it is a use of. Refuses chains and unlike pairs.
std::map<std::string, std::string> owners(const DeclarationByName& declared,
                                          const std::vector<Tie>& ties) {
  std::map<std::string, std::string> owner;
  for (const Tie& tie : ties) {
    if (tie.use == tie.of) {
      throw UsageError(base::str("cannot tie \"", tie.use, "\" to itself."));
    }
    if (!owner.emplace(tie.use, tie.of).second) {
      throw UsageError(base::str("cannot tie \"", tie.use, "\" to \"", tie.of,
                                 "\": it is already tied to \"", owner[tie.use], "\"."));
    }
  }
  for (const Tie& tie : ties) {
    const ParamDeclaration& use = declared_as(declared, tie.use, tie);
    const ParamDeclaration& of = declared_as(declared, tie.of, tie);
    if (const auto next = owner.find(tie.of); next != owner.end()) {
      throw UsageError(base::str("cannot tie \"", tie.use, "\" to \"", tie.of,
                                 "\", which is itself tied.\n  Tie it to \"", next->second, "\"."));
    }
    if (use.shape != of.shape) {
      throw UsageError(base::str("cannot tie \"", tie.use, "\" ", text(use.shape), " to \"", tie.of,
                                 "\" ", text(of.shape), ": a tied weight has one shape."));
    }
    if (use.trainable != of.trainable) {
      throw UsageError(base::str("cannot tie \"", tie.use, "\" to \"", tie.of,
                                 "\": one is trained and the other frozen."));
    }
  }
  return owner;
}

}  // namespace

int64_t ParamTable::numel() const {
  return std::accumulate(params.begin(), params.end(), int64_t{0},
                         [](int64_t sum, const Param& param) { return sum + param.numel; });
}

int ParamTable::find(const std::string& name) const {
  const auto at = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [this](int i, const std::string& key) { return params[static_cast<size_t>(i)].name < key; });
  if (at == by_name.end() || params[static_cast<size_t>(*at)].name != name) return -1;
  return *at;
}

ParamTable make_param_table(const std::vector<ParamDeclaration>& declared,
                            const std::vector<Tie>& ties) {
  const std::map<std::string, std::string> owner = owners(by_name(declared), ties);

  ParamTable table;
  std::map<std::string, size_t> place;
  for (const ParamDeclaration& declaration : declared) {
    const int64_t numel = numel_of(declaration);
    if (owner.contains(declaration.name)) continue;
    place.emplace(declaration.name, table.params.size());
    table.params.push_back({.name = declaration.name,
                            .shape = declaration.shape,
                            .numel = numel,
                            .trainable = declaration.trainable,
                            .decay = declaration.shape.size() >= 2,
                            .init = declaration.init,
                            .uses = {declaration.name}});
  }
  for (const auto& [use, of] : owner) table.params[place.at(of)].uses.push_back(use);
  for (Param& param : table.params) std::sort(param.uses.begin(), param.uses.end());

  for (const auto& entry : place) table.by_name.push_back(static_cast<int>(entry.second));
  return table;
}

}  // namespace lockstep::plan
