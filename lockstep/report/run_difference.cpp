#include "lockstep/report/run_difference.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/report/detail/logical_tensors.h"

namespace lockstep::report {
namespace {

using detail::Part;
using files::StepWitness;
using files::WitnessDigest;
using files::WitnessPiece;

constexpr std::array kOrder = {"activation", "loss",    "leaf-gradient", "gradient",
                               "norm",       "moment1", "moment2",       "parameter"};

auto place_of(const Difference& difference) {
  return std::find(kOrder.begin(), kOrder.end(), difference.kind) - kOrder.begin();
}

/// The logical parameters of all ranks, each once, in the order of the model: where ranks have
/// other layers, by their numbers, between what comes before the first of them and what comes
/// behind.
plan::ParamTable logical_table(const std::vector<const StepWitness*>& ranks) {
  struct Placed {
    int place = 0;
    plan::ParamDeclaration declared;
  };
  std::vector<Placed> placed;
  std::set<std::string> there;
  bool before_layers = true;
  size_t of_first = 0;
  for (const StepWitness* witness : ranks) {
    for (const plan::Param& param : witness->table.params) {
      const std::string& name = plan::logical_name(param);
      if (!there.insert(name).second) continue;
      const int layer = detail::layer_in(name);
      before_layers = before_layers && layer < 0;
      const int behind = std::numeric_limits<int>::max();
      placed.push_back({.place = layer >= 0 || before_layers ? layer : behind,
                        .declared = {.name = name,
                                     .shape = plan::logical_shape(param),
                                     .trainable = param.trainable,
                                     .init = {}}});
    }
    if (witness == ranks.front()) of_first = placed.size();
  }
  if (of_first != placed.size()) {
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Placed& x, const Placed& y) { return x.place < y.place; });
  }
  std::vector<plan::ParamDeclaration> declared;
  for (Placed& one : placed) declared.push_back(std::move(one.declared));
  return plan::make_param_table(declared, {});
}

/// Whether layers lie on several ranks, so that no rank knows the order of all of them.
bool is_cut(const std::vector<const StepWitness*>& ranks) {
  std::set<std::string> all, of_first;
  for (const StepWitness* witness : ranks) {
    for (const WitnessDigest& digest : witness->digests) {
      if (digest.kind != "activation") continue;
      all.insert(digest.name);
      if (witness == ranks.front()) of_first.insert(digest.name);
    }
  }
  return all != of_first;
}

std::vector<WitnessDigest> joined_digests(const std::vector<const StepWitness*>& ranks) {
  std::vector<WitnessDigest> digests;
  std::map<std::tuple<std::string, std::string, int, int>, size_t> known;
  for (const StepWitness* witness : ranks) {
    for (const WitnessDigest& one : witness->digests) {
      const auto [at, is_new] =
          known.try_emplace({one.kind, one.name, one.leaf, one.micro}, digests.size());
      if (is_new) {
        digests.push_back(one);
      } else {
        digests[at->second].digest.add(one.digest);
      }
    }
  }
  if (is_cut(ranks)) {
    std::stable_sort(digests.begin(), digests.end(),
                     [](const WitnessDigest& a, const WitnessDigest& b) {
                       return detail::layer_in(a.name) < detail::layer_in(b.name);
                     });
  }
  return digests;
}

/// A tensor's runs of elements that somebody holds.
void add_pieces(const std::string& kind, int param, int64_t numel, const std::vector<Part>& parts,
                std::vector<WitnessPiece>& pieces) {
  std::vector<float> values(static_cast<size_t>(numel));
  std::vector<char> is_there(static_cast<size_t>(numel));
  for (const Part& part : parts) {
    for (int64_t i = 0; i < part.run.size(); ++i) {
      const auto at = static_cast<size_t>(part.run.first + i);
      if (is_there[at]) continue;
      values[at] = part.values[i];
      is_there[at] = 1;
    }
  }
  for (size_t lo = 0; lo < values.size(); ++lo) {
    if (!is_there[lo]) continue;
    size_t hi = lo;
    while (hi < values.size() && is_there[hi]) ++hi;
    pieces.push_back({.kind = kind,
                      .param = param,
                      .lo = static_cast<int64_t>(lo),
                      .hi = static_cast<int64_t>(hi),
                      .values = {values.begin() + static_cast<int64_t>(lo),
                                 values.begin() + static_cast<int64_t>(hi)}});
    lo = hi;
  }
}

bool is_moment(const WitnessPiece& piece) { return piece.kind.starts_with("moment"); }

/// An optimizer that streams its state leaves no moments: what the other run has of them then has
/// no counterpart.
void drop_moments(std::vector<StepWitness>& ranks) {
  for (StepWitness& witness : ranks) std::erase_if(witness.pieces, is_moment);
}

bool has_moments(const std::vector<StepWitness>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [](const StepWitness& witness) {
    return std::any_of(witness.pieces.begin(), witness.pieces.end(), is_moment);
  });
}

std::vector<StepWitness> of_step(const std::vector<StepWitness>& witnesses, int64_t step) {
  std::vector<StepWitness> ranks;
  for (const StepWitness& witness : witnesses) {
    if (witness.step + 1 == step) ranks.push_back(witness);
  }
  return ranks;
}

StepWitness joined(const std::vector<StepWitness>& ranks) {
  std::vector<const StepWitness*> all;
  for (const StepWitness& witness : ranks) all.push_back(&witness);
  return report::joined(all);
}

/// `ranks` against what all of `others` have together.
Equivalence compare_with(const std::vector<StepWitness>& ranks,
                         const std::vector<StepWitness>& others, int64_t step, int moments) {
  return compare(
      ranks, {joined(others)},
      {.ranks = static_cast<int>(ranks.size()), .first = step, .steps = step, .moments = moments});
}

void swap_values(std::optional<Difference>& difference) {
  if (difference) std::swap(difference->layout, difference->alone);
}

}  // namespace

StepWitness joined(const std::vector<const StepWitness*>& ranks) {
  StepWitness whole;
  if (ranks.empty()) return whole;
  whole.step = ranks.front()->step;
  whole.loss = ranks.front()->loss;
  whole.grad_norm = ranks.front()->grad_norm;
  whole.table = logical_table(ranks);
  whole.digests = joined_digests(ranks);
  std::map<std::string, int> index_of;
  for (int i = 0; i < std::ssize(whole.table.params); ++i) {
    index_of[whole.table.params[static_cast<size_t>(i)].name] = i;
  }
  for (const auto& [tensor, parts] : detail::parts_of(ranks)) {
    const int param = index_of.at(tensor.second);
    add_pieces(tensor.first, param, whole.table.params[static_cast<size_t>(param)].numel, parts,
               whole.pieces);
  }
  return whole;
}

RunComparison compare_runs(const std::vector<StepWitness>& a, const std::vector<StepWitness>& b,
                           int64_t first, int64_t last, int moments) {
  RunComparison result;
  for (int64_t step = first; step <= last; ++step) {
    std::vector<StepWitness> of_a = of_step(a, step);
    std::vector<StepWitness> of_b = of_step(b, step);
    if (of_a.empty() || of_b.empty()) {
      result.missing.push_back(
          base::str("step ", step, ": ", of_a.empty() ? "A" : "B", " has left no witness"));
      return result;
    }
    const bool both = has_moments(of_a) && has_moments(of_b);
    if (!both) {
      drop_moments(of_a);
      drop_moments(of_b);
    }
    Equivalence there = compare_with(of_a, of_b, step, both ? moments : 0);
    Equivalence back = compare_with(of_b, of_a, step, both ? moments : 0);
    swap_values(back.first);
    swap_values(back.first_element);
    result.missing = there.missing.empty() ? back.missing : there.missing;
    if (!there.first && !back.first && result.missing.empty()) {
      ++result.equal_steps;
      continue;
    }
    const bool of_back =
        back.first && (!there.first || place_of(*back.first) < place_of(*there.first));
    const Equivalence& nearest = of_back ? back : there;
    if (nearest.first) {
      result.difference = {.first = *nearest.first, .rank_is_of_b = of_back, .element = {}};
      if (nearest.first->index < 0) result.difference->element = nearest.first_element;
    }
    return result;
  }
  return result;
}

}  // namespace lockstep::report
