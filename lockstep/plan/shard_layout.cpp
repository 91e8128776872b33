#include "lockstep/plan/shard_layout.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "lockstep/base/assert.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/norm_chunks.h"

namespace lockstep::plan {
namespace {

int64_t padded(int64_t numel) {
  return (numel + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// The place nearest to `wanted` where slots may be cut: a slot's start, multiples of a chunk in
/// it, and `end`. `slots` lie in rising order from the one that begins at `begin`.
int64_t nearest_cut(const std::vector<UnitSlot>& slots, int64_t wanted, int64_t end) {
  const auto next = std::upper_bound(
      slots.begin(), slots.end(), wanted,
      [](int64_t position, const UnitSlot& slot) { return position < slot.offset; });
  if (next == slots.begin()) return wanted;
  const UnitSlot& slot = *(next - 1);
  const int64_t slot_end = next == slots.end() ? end : next->offset;
  const int64_t inside = wanted - slot.offset;
  const int64_t below = slot.offset + inside / kNormChunk * kNormChunk;
  const int64_t above =
      below + kNormChunk < slot.offset + slot.numel ? below + kNormChunk : slot_end;
  return wanted - below <= above - wanted ? below : above;
}

/// Cuts of the part [begin, end) of a unit's buffer over `ranks`.
std::vector<int64_t> cuts_of(const std::vector<UnitSlot>& slots, int64_t begin, int64_t end,
                             int ranks) {
  std::vector<int64_t> cuts = {begin};
  for (int rank = 1; rank < ranks; ++rank) {
    const int64_t wanted = begin + (end - begin) * rank / ranks;
    cuts.push_back(std::max(cuts.back(), nearest_cut(slots, wanted, end)));
  }
  cuts.push_back(end);
  return cuts;
}

std::vector<UnitSlot> slots_of(const ShardLayout& layout, const ShardUnit& unit, bool trained) {
  std::vector<UnitSlot> slots;
  for (const int param : unit.params) {
    const UnitSlot& slot = layout.slots[static_cast<size_t>(param)];
    if ((slot.offset < unit.trained) == trained && slot.numel > 0) slots.push_back(slot);
  }
  return slots;
}

}  // namespace

std::string unit_of(const std::string& path) {
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    if (is_number(std::string_view(path).substr(begin, dot - begin))) return path.substr(0, dot);
    begin = dot + 1;
  }
  return {};
}

std::string unit_of(const Param& param) {
  if (param.unit) return *param.unit;
  const std::string unit = unit_of(param.uses.front());
  const bool all = std::all_of(param.uses.begin(), param.uses.end(),
                               [&](const std::string& use) { return unit_of(use) == unit; });
  if (all && !unit.empty()) return unit;
  // The root of each chunk of a pipeline is its own.
  return param.chunk() > 0 ? base::str("chunk ", param.chunk()) : std::string();
}

BucketPlan plan_unit_buckets(const ParamTable& table) {
  std::vector<std::string> names;  // in the order of first use, the root first
  std::map<std::string, std::vector<int>> trained;
  for (size_t p = 0; p < table.params.size(); ++p) {
    const Param& param = table.params[p];
    if (!param.trainable) continue;
    const std::string name = unit_of(param);
    if (!trained.contains(name)) {
      names.insert(name.empty() ? names.begin() : names.end(), name);
    }
    trained[name].push_back(static_cast<int>(p));
  }
  BucketPlan plan;
  plan.slots.resize(table.params.size());
  for (size_t p = 0; p < table.params.size(); ++p) {
    plan.slots[p].param = static_cast<int>(p);
    plan.slots[p].numel = table.params[p].numel;
  }
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    Bucket bucket{.offset = plan.numel, .numel = 0, .params = trained[*name]};
    for (const int param : bucket.params) {
      Slot& slot = plan.slots[static_cast<size_t>(param)];
      slot.bucket = static_cast<int>(plan.buckets.size());
      slot.offset = plan.numel + bucket.numel;
      bucket.numel += padded(slot.numel);
    }
    plan.numel += bucket.numel;
    plan.buckets.push_back(std::move(bucket));
  }
  return plan;
}

ShardLayout plan_shards(const ParamTable& table, const BucketPlan& buckets,
                        const ShardOptions& options) {
  LOCKSTEP_ASSERT(options.ranks >= 1 && options.replicas >= 1 && options.prefetch >= 0,
                  "a layout has ranks");
  LOCKSTEP_ASSERT(options.stage != Shard::none || options.ranks == 1,
                  "what nobody divides is whole on every rank");
  ShardLayout layout{.options = options, .units = {}, .slots = {}, .forward = {}};
  layout.slots.resize(table.params.size());
  for (const Bucket& bucket : buckets.buckets) {
    ShardUnit unit{.name = {},
                   .bucket = static_cast<int>(layout.units.size()),
                   .params = bucket.params,
                   .numel = bucket.numel,
                   .trained = bucket.numel,
                   .cuts = {},
                   .frozen = {}};
    for (const int param : bucket.params) {
      const Slot& slot = buckets.slots[static_cast<size_t>(param)];
      layout.slots[static_cast<size_t>(param)] = {
          .unit = unit.bucket, .offset = slot.offset - bucket.offset, .numel = slot.numel};
    }
    if (layout.gathers()) unit.name = unit_of(table.params[static_cast<size_t>(bucket.params[0])]);
    layout.units.push_back(std::move(unit));
  }
  for (size_t p = 0; p < table.params.size() && layout.gathers(); ++p) {
    const Param& param = table.params[p];
    if (param.trainable) continue;
    const std::string name = unit_of(param);
    auto unit = std::find_if(layout.units.begin(), layout.units.end(),
                             [&](const ShardUnit& candidate) { return candidate.name == name; });
    if (unit == layout.units.end()) {
      layout.units.push_back({.name = name, .params = {}, .cuts = {}, .frozen = {}});
      unit = layout.units.end() - 1;
    }
    layout.slots[p] = {.unit = static_cast<int>(unit - layout.units.begin()),
                       .offset = unit->numel,
                       .numel = param.numel};
    unit->params.push_back(static_cast<int>(p));
    unit->numel += padded(param.numel);
  }
  for (ShardUnit& unit : layout.units) {
    unit.cuts = cuts_of(slots_of(layout, unit, true), 0, unit.trained, options.ranks);
    unit.frozen = cuts_of(slots_of(layout, unit, false), unit.trained, unit.numel, options.ranks);
  }
  std::vector<bool> seen(layout.units.size());
  for (const UnitSlot& slot : layout.slots) {
    if (slot.unit < 0 || seen[static_cast<size_t>(slot.unit)]) continue;
    seen[static_cast<size_t>(slot.unit)] = true;
    const bool root = layout.gathers() && layout.units[static_cast<size_t>(slot.unit)].name.empty();
    layout.forward.insert(root ? layout.forward.begin() : layout.forward.end(), slot.unit);
  }
  return layout;
}

std::vector<int64_t> ShardLayout::counts(int unit, bool trained) const {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    counts.push_back(owned(unit, rank, trained).size());
  }
  return counts;
}

ElementRange ShardLayout::owned(int unit, int rank, bool trained) const {
  const ShardUnit& of = units[static_cast<size_t>(unit)];
  const std::vector<int64_t>& cuts = trained ? of.cuts : of.frozen;
  return {cuts[static_cast<size_t>(rank)], cuts[static_cast<size_t>(rank) + 1]};
}

std::vector<Piece> ShardLayout::pieces(int rank, bool trained) const {
  std::vector<Piece> pieces;
  for (size_t u = 0; u < units.size(); ++u) {
    const ElementRange own = owned(static_cast<int>(u), rank, trained);
    for (const int param : units[u].params) {
      const UnitSlot& slot = slots[static_cast<size_t>(param)];
      if ((slot.offset < units[u].trained) != trained) continue;
      const int64_t lo = std::max(own.lo, slot.offset);
      const int64_t hi = std::min(own.hi, slot.offset + slot.numel);
      if (lo >= hi) continue;
      pieces.push_back({.param = param,
                        .lo = lo - slot.offset,
                        .hi = hi - slot.offset,
                        .unit = static_cast<int>(u),
                        .in_unit = lo});
    }
  }
  return pieces;
}

int64_t ShardLayout::owned_numel(int rank, bool trained) const {
  int64_t numel = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    numel += owned(static_cast<int>(u), rank, trained).size();
  }
  return numel;
}

int ShardLayout::root() const {
  if (!gathers() || forward.empty()) return -1;
  return units[static_cast<size_t>(forward[0])].name.empty() ? forward[0] : -1;
}

namespace {

/// Units that come and go, in the order of forward: all but the root.
std::vector<int> inner_units(const ShardLayout& layout) {
  std::vector<int> inner = layout.forward;
  if (layout.root() >= 0) inner.erase(inner.begin());
  return inner;
}

/// Goes through `units`, of which the first `live` are gathered already, `depth` ahead of their
/// use, and frees each when the next one is touched.
void walk(const std::vector<int>& units, size_t live, size_t depth, std::vector<UnitStep>& steps) {
  using Op = UnitStep::Op;
  size_t gathered = live;
  const auto gather_below = [&](size_t end) {
    for (; gathered < std::min(end, units.size()); ++gathered) {
      steps.push_back({Op::gather, units[gathered]});
    }
  };
  gather_below(live + depth);
  for (size_t k = 0; k < units.size(); ++k) {
    steps.push_back({Op::touch, units[k]});
    if (k > 0) steps.push_back({Op::release, units[k - 1]});
    gather_below(k + depth + 1);
  }
}

}  // namespace

std::vector<UnitStep> forward_units(const ShardLayout& layout, bool backward_follows) {
  using Op = UnitStep::Op;
  if (!layout.gathers()) return {};
  const int root = layout.root();
  const std::vector<int> inner = inner_units(layout);
  const Reshard reshard = backward_follows ? layout.options.reshard : Reshard::always;
  std::vector<UnitStep> steps;
  if (root >= 0) {
    steps.push_back({Op::gather, root});
    steps.push_back({Op::touch, root});
  }
  walk(inner, 0, static_cast<size_t>(layout.options.prefetch), steps);
  if (reshard == Reshard::never) {
    std::erase_if(steps, [](const UnitStep& step) { return step.op == Op::release; });
  }
  if (reshard == Reshard::always) {
    if (!inner.empty()) steps.push_back({Op::release, inner.back()});
    if (root >= 0) steps.push_back({Op::release, root});
  }
  return steps;
}

std::vector<UnitStep> backward_units(const ShardLayout& layout) {
  using Op = UnitStep::Op;
  if (!layout.gathers()) return {};
  const int root = layout.root();
  std::vector<int> inner = inner_units(layout);
  std::reverse(inner.begin(), inner.end());
  const Reshard reshard = layout.options.reshard;
  std::vector<UnitStep> steps;
  if (root >= 0 && reshard == Reshard::always) {
    steps.push_back({Op::gather, root});
    steps.push_back({Op::touch, root});
  }
  const size_t live = reshard == Reshard::never    ? inner.size()
                      : reshard == Reshard::always ? 0
                                                   : std::min<size_t>(1, inner.size());
  walk(inner, live, static_cast<size_t>(layout.options.prefetch), steps);
  if (!inner.empty()) steps.push_back({Op::release, inner.back()});
  if (root >= 0) steps.push_back({Op::release, root});
  return steps;
}

Shard parse_shard(const std::string& name) {
  if (name == "zero1") return Shard::zero1;
  if (name == "zero2") return Shard::zero2;
  if (name == "zero3") return Shard::zero3;
  LOCKSTEP_ASSERT(name == "none", "the config table holds the names");
  return Shard::none;
}

Reshard parse_reshard(const std::string& name) {
  if (name == "always") return Reshard::always;
  if (name == "never") return Reshard::never;
  LOCKSTEP_ASSERT(name == "auto", "the config table holds the names");
  return Reshard::automatic;
}

}  // namespace lockstep::plan
