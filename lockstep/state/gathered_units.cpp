#include "lockstep/state/gathered_units.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/state/heap_tensor.h"

namespace lockstep::state {
namespace {

std::string name_of(const plan::ShardUnit& unit) {
  return unit.name.empty() ? "the root" : base::str("\"", unit.name, "\"");
}

}  // namespace

GatheredUnits::GatheredUnits(const plan::ShardLayout& layout, ProcessGroup& group)
    : layout_(layout), group_(group), units_(layout.units.size()) {
  LOCKSTEP_ASSERT(group.size() == layout.options.ranks, "the group has the layout's ranks");
  const int rank = group.rank();
  int64_t numel = 0;
  for (const bool trained : {true, false}) numel += layout.owned_numel(rank, trained);
  shards_ = heap_tensor(group, numel, at::kFloat, memory::Kind::parameters);
  int64_t offset = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    const int index = static_cast<int>(u);
    const auto part = [&](bool trained) {
      const int64_t count = layout.owned(index, rank, trained).size();
      offset += count;
      return shards_.narrow(0, offset - count, count);
    };
    unit.trained = part(true);
    unit.frozen = part(false);
    unit.storage = std::make_unique<torch_inside::ReleasableStorage>(
        layout.units[u].numel, [this, index] { touch(index); });
  }
}

GatheredUnits::~GatheredUnits() = default;

at::Tensor GatheredUnits::parameter(int param, at::IntArrayRef shape) const {
  const plan::UnitSlot& slot = layout_.slots[static_cast<size_t>(param)];
  return units_[static_cast<size_t>(slot.unit)].storage->watched(shape, slot.offset);
}

float* GatheredUnits::shard(int unit, bool trained) const {
  const Unit& of = units_[static_cast<size_t>(unit)];
  return (trained ? of.trained : of.frozen).data_ptr<float>();
}

const float* GatheredUnits::gathered(int param) const {
  const plan::UnitSlot& slot = layout_.slots[static_cast<size_t>(param)];
  const Unit& unit = units_[static_cast<size_t>(slot.unit)];
  LOCKSTEP_ASSERT(unit.ready, "only a gathered unit has values");
  return unit.storage->flat().data_ptr<float>() + slot.offset;
}

void GatheredUnits::gather(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  LOCKSTEP_ASSERT(!of.gathered, "a unit is gathered once before it is released");
  {
    const memory::KindScope kind(memory::Kind::gathered);
    of.storage->allocate();
  }
  of.gathered = true;
  ++gathers_;
  if (unit != layout_.root()) most_gathered_ = std::max(most_gathered_, ++gathered_);
  const plan::ShardUnit& plan = layout_.units[static_cast<size_t>(unit)];
  const auto part = [&](const at::Tensor& mine, int64_t begin, int64_t end, bool trained) {
    if (begin == end) return;
    of.works.push_back(group_.all_gather_uneven(
        mine, of.storage->flat().narrow(0, begin, end - begin), layout_.counts(unit, trained)));
  };
  part(of.trained, 0, plan.trained, true);
  part(of.frozen, plan.trained, plan.numel, false);
}

void GatheredUnits::await(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  LOCKSTEP_ASSERT(of.gathered, "a gather has begun");
  for (Work& work : of.works) work.wait();
  of.works.clear();
  of.ready = true;
}

void GatheredUnits::release(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  if (!of.gathered) return;
  await(unit);  // of a unit that nothing touched
  of.storage->release();
  of.gathered = of.ready = false;
  if (unit != layout_.root()) --gathered_;
}

bool GatheredUnits::released(int unit) const { return !units_[static_cast<size_t>(unit)].gathered; }

void GatheredUnits::touch(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  if (of.ready) return;
  if (touched_) touched_(unit);
  if (!of.gathered) {
    throw UsageError(base::str(
        "[rank ", group_.rank(), " of ", group_.size(), "] parameters of unit ",
        name_of(layout_.units[static_cast<size_t>(unit)]),
        " are divided among the ranks, and an operator came to them where they are not gathered.\n"
        "  Use them inside forward and backward, layers in the order in which they are "
        "registered."));
  }
  await(unit);
}

}  // namespace lockstep::state
