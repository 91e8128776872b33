#include "lockstep/report/equivalence.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/report/detail/logical_tensors.h"

namespace lockstep::report {
namespace {

using detail::layer_in;
using detail::Part;
using detail::Tensor;
using detail::Whole;
using files::StepWitness;
using files::WitnessDigest;

constexpr double kRoundoff = 0x1p-24;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Digests of one kind and layer or parameter, added over ranks.
using DigestKey = std::tuple<std::string, int, int, std::string>;  // kind, leaf, micro, name
struct DigestSum {
  plan::Digest digest;
  int rank = -1;
};
std::map<DigestKey, DigestSum> sums_of(const std::vector<const StepWitness*>& witnesses) {
  std::map<DigestKey, DigestSum> sums;
  for (const StepWitness* witness : witnesses) {
    for (const WitnessDigest& one : witness->digests) {
      const auto [at, is_new] =
          sums.try_emplace(DigestKey{one.kind, one.leaf, one.micro, one.name});
      at->second.digest.add(one.digest);
      at->second.rank = is_new || at->second.rank == witness->rank ? witness->rank : -1;
    }
  }
  return sums;
}

class Comparison {
 public:
  explicit Comparison(const EquivalenceOptions& options) : options_(options) {
    for (const char* kind : {"activation", "loss", "leaf-gradient", "gradient", "norm", "moment1",
                             "moment2", "parameter"}) {
      result_.kinds.push_back({.kind = kind});
    }
  }

  void step(int64_t step, const std::vector<const StepWitness*>& layout, const StepWitness& alone) {
    step_ = step;
    order_ = detail::logical_order(alone.table);
    wholes_ = detail::wholes_of(alone);
    parts_ = detail::parts_of(layout);
    kinds_.clear();
    for (const auto& [tensor, parts] : parts_) kinds_.insert(tensor.first);
    digests_ = sums_of(layout);
    alone_digests_ = sums_of({&alone});

    compare_digests(activations_of(alone));
    compare_numbers("loss", layout, alone, &StepWitness::loss);
    compare_digests(leaf_gradients());
    std::vector<std::string> backward = order_;
    std::reverse(backward.begin(), backward.end());
    compare_tensors("gradient", backward);
    compare_numbers("norm", layout, alone, &StepWitness::grad_norm);
    for (const char* kind : {"moment1", "moment2", "parameter"}) compare_tensors(kind, order_);
    report_leftovers();
    require_all_of(alone);
  }

  void missing(const std::string& what) { result_.missing.push_back(what); }

  Equivalence result() && {
    bool values_differ = false;
    for (const KindResult& kind : result_.kinds) {
      const bool has_values = kind.kind != "activation" && kind.kind != "leaf-gradient";
      values_differ = values_differ || (has_values && kind.unequal > 0);
    }
    if (result_.first || !result_.missing.empty()) result_.verdict = Verdict::within;
    const bool beyond = result_.first_beyond.has_value() || !result_.missing.empty();
    if (beyond || (result_.first && (options_.exact || !values_differ))) {
      result_.verdict = Verdict::broken;
    }
    return std::move(result_);
  }

 private:
  // ---- digests

  /// In the order in which the lone run computed them.
  std::vector<DigestKey> activations_of(const StepWitness& alone) const {
    std::vector<DigestKey> keys;
    for (const WitnessDigest& one : alone.digests) {
      if (one.kind == "activation") keys.emplace_back(one.kind, one.leaf, one.micro, one.name);
    }
    std::stable_sort(keys.begin(), keys.end(), [](const DigestKey& a, const DigestKey& b) {
      return std::pair(std::get<1>(a), std::get<2>(a)) < std::pair(std::get<1>(b), std::get<2>(b));
    });
    return keys;
  }

  std::vector<DigestKey> leaf_gradients() const {
    std::vector<DigestKey> keys;
    for (const auto& [key, sum] : alone_digests_) {
      if (std::get<0>(key) == "leaf-gradient") keys.push_back(key);
    }
    const auto place = [&](const DigestKey& key) {
      return std::find(order_.begin(), order_.end(), std::get<3>(key)) - order_.begin();
    };
    std::stable_sort(keys.begin(), keys.end(), [&](const DigestKey& a, const DigestKey& b) {
      return std::pair(std::get<1>(a), -place(a)) < std::pair(std::get<1>(b), -place(b));
    });
    return keys;
  }

  void compare_digests(const std::vector<DigestKey>& keys) {
    for (const DigestKey& key : keys) {
      const auto& [kind, leaf, micro, name] = key;
      const auto found = digests_.find(key);
      if (found == digests_.end()) {
        missing(base::str("step ", step_, ": ", kind, " of ", name, ", leaf ", leaf,
                          micro < 0 ? "" : base::str(", micro-batch ", micro), ": no rank has it"));
        continue;
      }
      KindResult& result = of(kind);
      ++result.compared;
      if (!(found->second.digest == alone_digests_.at(key).digest)) {
        ++result.unequal;
        note({.step = step_,
              .kind = kind,
              .name = name,
              .layer = layer_in(name),
              .leaf = leaf,
              .micro = micro,
              .rank = found->second.rank,
              .difference = kNan},
             false);
      }
      digests_.erase(found);
    }
  }

  // ---- values

  void compare_numbers(const char* kind, const std::vector<const StepWitness*>& layout,
                       const StepWitness& alone, double StepWitness::*number) {
    for (const StepWitness* witness : layout) {
      Difference difference{.step = step_,
                            .kind = kind,
                            .name = {},
                            .rank = witness->rank,
                            .layout = witness->*number,
                            .alone = alone.*number};
      KindResult& result = of(kind);
      ++result.compared;
      if (std::bit_cast<uint64_t>(difference.layout) == std::bit_cast<uint64_t>(difference.alone)) {
        continue;
      }
      ++result.unequal;
      const double ratio = measure(difference, std::abs(difference.alone));
      result.largest = std::max(result.largest, ratio);
      result.beyond += ratio > 1 ? 1 : 0;
      note(difference, ratio > 1);
    }
  }

  void compare_tensors(const std::string& kind, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto found = wholes_.find({kind, name});
      if (found == wholes_.end()) continue;  // of a parameter that is not trained
      Whole& whole = found->second;
      for (const Part& part : parts_[found->first]) compare_part(found->first, whole, part);
      report_gaps(found->first, whole);
      parts_.erase(found->first);
    }
  }

  void compare_part(const Tensor& tensor, Whole& whole, const Part& part) {
    KindResult& result = of(tensor.first);
    ++result.compared;
    std::optional<Difference> first;
    bool beyond = false;
    const auto numel = std::ssize(whole.values);
    for (int64_t i = 0; i < part.run.size(); ++i) {
      const int64_t index = part.run.first + i;
      if (index >= numel || !whole.is_there[static_cast<size_t>(index)]) {
        missing(base::str("step ", step_, ": ", tensor.first, " of ", tensor.second, ": element ",
                          index, " of rank ", part.rank, " is not in the lone run"));
        break;
      }
      whole.is_held[static_cast<size_t>(index)] = 1;
      const float alone = whole.values[static_cast<size_t>(index)];
      if (std::bit_cast<uint32_t>(part.values[i]) == std::bit_cast<uint32_t>(alone)) continue;
      Difference difference{.step = step_,
                            .kind = tensor.first,
                            .name = tensor.second,
                            .layer = layer_in(tensor.second),
                            .rank = part.rank,
                            .index = index,
                            .layout = part.values[i],
                            .alone = alone};
      const double ratio = measure(difference, whole.largest);
      result.largest = std::max(result.largest, ratio);
      if (ratio > 1 && !beyond && !result_.first_beyond) result_.first_beyond = difference;
      beyond = beyond || ratio > 1;
      if (!first) first = difference;
    }
    if (!first) return;
    ++result.unequal;
    result.beyond += beyond ? 1 : 0;
    note(*first, false);
  }

  void report_gaps(const Tensor& tensor, const Whole& whole) {
    // An optimizer that streams its state from a file leaves no moments: its parameters speak.
    if (tensor.first.starts_with("moment") && !kinds_.contains(tensor.first)) return;
    for (size_t i = 0; i < whole.values.size(); ++i) {
      if (!whole.is_there[i] || whole.is_held[i]) continue;
      size_t end = i;
      while (end < whole.values.size() && whole.is_there[end] && !whole.is_held[end]) ++end;
      missing(base::str("step ", step_, ": ", tensor.first, " of ", tensor.second, ": elements ", i,
                        " to ", end - 1, " are on no rank"));
      return;
    }
  }

  /// What the layout has and nobody asked for.
  void report_leftovers() {
    for (const auto& [key, sum] : digests_) {
      missing(base::str("step ", step_, ": ", std::get<0>(key), " of ", std::get<3>(key), ", leaf ",
                        std::get<1>(key), " of rank ", sum.rank, " is not in the lone run"));
    }
    for (const auto& [tensor, parts] : parts_) {
      if (parts.empty()) continue;
      missing(base::str("step ", step_, ": ", tensor.first, " of ", tensor.second, " of rank ",
                        parts.front().rank, " is not in the lone run"));
    }
  }

  /// Equal because nothing was compared is not equal.
  void require_all_of(const StepWitness& alone) {
    for (const plan::Param& param : alone.table.params) {
      if (param.numel == 0) continue;
      for (const std::string_view kind : {"gradient", "parameter", "moment1", "moment2"}) {
        if (kind == "moment1" && options_.moments < 1) break;
        if (kind == "moment2" && options_.moments < 2) break;
        const auto found = wholes_.find({std::string(kind), plan::logical_name(param)});
        const bool whole = found != wholes_.end() &&
                           std::find(found->second.is_there.begin(), found->second.is_there.end(),
                                     0) == found->second.is_there.end();
        const bool wanted = param.trainable || kind == "parameter";
        if (whole || !wanted) continue;
        missing(base::str("step ", step_, ": ", kind, " of ", plan::logical_name(param),
                          ": the lone run has not left all of it"));
      }
    }
  }

  /// The difference over its bound.
  double measure(Difference& difference, double largest) const {
    difference.difference = std::abs(difference.layout - difference.alone);
    difference.bound = static_cast<double>(options_.terms) * kRoundoff * largest;
    if (difference.difference == 0) return 0;  // 0 and -0
    const double ratio = difference.difference / difference.bound;
    return std::isfinite(ratio) && std::isfinite(difference.bound) ? ratio : kInfinity;
  }

  void note(const Difference& difference, bool beyond) {
    if (!result_.first) result_.first = difference;
    if (difference.index >= 0 && !result_.first_element) result_.first_element = difference;
    if (beyond && !result_.first_beyond) result_.first_beyond = difference;
  }

  KindResult& of(const std::string& kind) {
    const auto at = std::find_if(result_.kinds.begin(), result_.kinds.end(),
                                 [&](const KindResult& known) { return known.kind == kind; });
    return *at;
  }

  const EquivalenceOptions options_;
  Equivalence result_;
  int64_t step_ = 0;
  std::map<Tensor, Whole> wholes_;
  std::map<Tensor, std::vector<Part>> parts_;
  std::set<std::string> kinds_;  // that the layout's ranks have left
  std::map<DigestKey, DigestSum> digests_;
  std::map<DigestKey, DigestSum> alone_digests_;
  std::vector<std::string> order_;  // of logical parameters, as the lone run's model has them
};

}  // namespace

int64_t terms_of(const plan::TrainConfig& config) {
  constexpr int64_t kWindow = 8;  // tokens side by side in a product of the family mlp
  const auto& model = config.model;
  const int64_t products[] = {kWindow * model.width, plan::feed_forward_width(config),
                              plan::resolved_vocab(config), model.context};
  return config.data.global_batch * model.context +
         *std::max_element(std::begin(products), std::end(products));
}

Equivalence compare(const std::vector<StepWitness>& layout, const std::vector<StepWitness>& alone,
                    const EquivalenceOptions& options) {
  Comparison comparison(options);
  for (int64_t step = options.first; step <= options.steps; ++step) {
    const auto of_step = [&](const StepWitness& witness) { return witness.step + 1 == step; };
    const auto reference = std::find_if(alone.begin(), alone.end(), of_step);
    std::set<int> there;
    std::vector<const StepWitness*> ranks;
    for (const StepWitness& witness : layout) {
      if (of_step(witness) && there.insert(witness.rank).second) ranks.push_back(&witness);
    }
    for (int rank = 0; rank < options.ranks; ++rank) {
      if (there.contains(rank)) continue;
      comparison.missing(base::str("step ", step, ": rank ", rank, " has left no witness"));
    }
    if (reference == alone.end()) {
      comparison.missing(base::str("step ", step, ": the lone run has left no witness"));
    } else if (!ranks.empty()) {
      comparison.step(step, ranks, *reference);
    }
  }
  return std::move(comparison).result();
}

}  // namespace lockstep::report
