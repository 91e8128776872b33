#include "lockstep/plan/param_table.h"

#include <algorithm>
#include <functional>
#include <iterator>
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

int64_t product(const std::vector<int64_t>& sizes, size_t from) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(from), sizes.end(), int64_t{1},
                         std::multiplies<>());
}

void check_slice(const ParamDeclaration& declared) {
  const TensorSlice& slice = declared.slice;
  if (slice.logical.empty()) return;
  std::vector<int64_t> shape = slice.shape;
  const auto dim = static_cast<size_t>(slice.dim);
  int64_t along = 0;
  bool even = true;
  for (const int64_t block : slice.blocks) {
    along += block;
    even &= block % slice.grains == 0;
  }
  const bool fits = dim < shape.size() && along >= shape[dim] && even && slice.grain >= 0 &&
                    slice.grain < slice.grains;
  if (fits) shape[dim] = along / slice.grains;
  if (!fits || shape != declared.shape) {
    throw UsageError(base::str("parameter \"", declared.name, "\" ", text(declared.shape),
                               " is no grain ", slice.grain, " of ", slice.grains, " of \"",
                               slice.logical, "\" ", text(slice.shape), " along direction ",
                               slice.dim, "."));
  }
}

/// Without the ties of which this part has only one use, or none.
std::vector<Tie> ties_inside(const DeclarationByName& declared, const std::vector<Tie>& ties) {
  std::vector<Tie> inside;
  for (const Tie& tie : ties) {
    if (declared.contains(tie.use) && declared.contains(tie.of)) inside.push_back(tie);
  }
  return inside;
}

/// A tied parameter of which other parts have uses: it has one name everywhere.
void name_across(std::vector<Param>& params, const std::vector<Tie>& ties) {
  for (Param& param : params) {
    std::string owner = param.name;
    for (const Tie& tie : ties) {
      if (tie.use == param.name) owner = tie.of;
    }
    std::vector<std::string> all;
    for (const Tie& tie : ties) {
      if (tie.of == owner) all.push_back(tie.use);
    }
    if (all.empty()) continue;
    all.push_back(owner);
    std::sort(all.begin(), all.end());
    std::set_difference(all.begin(), all.end(), param.uses.begin(), param.uses.end(),
                        std::back_inserter(param.elsewhere));
    // A grain's name is the logical one and a suffix, "wte.weight@1".
    if (param.name != owner && !param.slice.logical.empty()) {
      const size_t suffix = param.name.size() - param.slice.logical.size();
      param.slice.logical = owner.substr(0, owner.size() - suffix);
    }
    param.name = owner;
  }
}

/// A parameter whose gradient waits for another chunk is gathered and reduced by itself.
void mark_across(Param& param, const DeclarationByName& declared) {
  param.use_chunks.clear();
  for (const std::string& use : param.uses) {
    param.use_chunks.push_back(declared.at(use)->chunk);
  }
  const bool one_chunk = std::all_of(param.use_chunks.begin(), param.use_chunks.end(),
                                     [&](int chunk) { return chunk == param.chunk(); });
  param.is_across = !one_chunk || !param.elsewhere.empty();
  if (!param.is_across) return;
  param.unit = param.name;
  if (param.uses.size() + param.elsewhere.size() > 2) {
    throw UsageError(base::str("parameter \"", param.name,
                               "\" has more than two uses, and a pipeline has them in several "
                               "pieces.\n  Tie at most two, or keep them in one piece."));
  }
}

}  // namespace

const std::string& logical_name(const Param& param) {
  return param.slice.logical.empty() ? param.name : param.slice.logical;
}

const std::vector<int64_t>& logical_shape(const Param& param) {
  return param.slice.logical.empty() ? param.shape : param.slice.shape;
}

std::vector<LogicalRun> logical_runs(const Param& param, int64_t lo, int64_t hi) {
  const TensorSlice& slice = param.slice;
  if (slice.logical.empty()) return {{lo, hi, lo}};
  const auto dim = static_cast<size_t>(slice.dim);
  const int64_t inner = product(param.shape, dim + 1);  // elements of one index along `dim`
  const int64_t own = param.shape[dim];
  const int64_t whole = slice.shape[dim];
  std::vector<LogicalRun> runs;
  while (lo < hi) {
    const int64_t outer = lo / (own * inner);
    int64_t index = lo / inner % own;  // of this tensor, then of the logical one
    const int64_t within = lo % inner;
    int64_t block_start = 0;
    int64_t left = 0;  // indices of the block's run from here
    for (const int64_t block : slice.blocks) {
      const int64_t part = block / slice.grains;
      if (index < part) {
        left = part - index;
        index += block_start + slice.grain * part;
        break;
      }
      index -= part;
      block_start += block;
    }
    const bool padding = index >= whole;
    if (!padding) left = std::min(left, whole - index);
    LogicalRun run{lo, std::min(hi, lo + left * inner - within),
                   padding ? -1 : (outer * whole + index) * inner + within};
    if (!runs.empty() && !padding && runs.back().first >= 0 &&
        runs.back().first + runs.back().size() == run.first) {
      runs.back().hi = run.hi;
    } else {
      runs.push_back(run);
    }
    lo = run.hi;
  }
  return runs;
}

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
                            const std::vector<Tie>& ties, bool is_part) {
  const DeclarationByName names = by_name(declared);
  const std::map<std::string, std::string> owner =
      owners(names, is_part ? ties_inside(names, ties) : ties);

  ParamTable table;
  std::map<std::string, size_t> place;
  for (const ParamDeclaration& declaration : declared) {
    const int64_t numel = numel_of(declaration);
    check_slice(declaration);
    if (owner.contains(declaration.name)) continue;
    place.emplace(declaration.name, table.params.size());
    table.params.push_back({.name = declaration.name,
                            .shape = declaration.shape,
                            .numel = numel,
                            .trainable = declaration.trainable,
                            .decay = declaration.shape.size() >= 2,
                            .init = declaration.init,
                            .uses = {declaration.name},
                            .slice = declaration.slice});
  }
  for (const auto& [use, of] : owner) table.params[place.at(of)].uses.push_back(use);
  for (Param& param : table.params) std::sort(param.uses.begin(), param.uses.end());

  if (is_part) name_across(table.params, ties);
  for (Param& param : table.params) mark_across(param, names);
  std::map<std::string, int> names_here;
  for (size_t p = 0; p < table.params.size(); ++p) {
    names_here.emplace(table.params[p].name, static_cast<int>(p));
  }
  for (const auto& entry : names_here) table.by_name.push_back(entry.second);
  return table;
}

}  // namespace lockstep::plan
