#include "lockstep/state/gathered_units.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/state/heap_tensor.h"

namespace lockstep::state {
namespace {

std::string name_of(const plan::ShardUnit& unit) {
  return unit.name.empty() ? "the root" : base::str("\"", unit.name, "\"");
}

}  // namespace

GatheredUnits::GatheredUnits(const plan::ShardLayout& layout, ProcessGroup& group, ShardFile* file)
    : layout_(layout), group_(group), file_(file), units_(layout.units.size()) {
  LOCKSTEP_ASSERT(group.size() == layout.options.ranks, "the group has the layout's ranks");
  const int rank = group.rank();
  int64_t numel = 0;
  for (const bool trained : {true, false}) numel += layout.owned_numel(rank, trained);
  if (file == nullptr) {
    shards_ = heap_tensor(group, numel, at::kFloat, memory::Kind::parameters);
  }
  int64_t offset = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    const int index = static_cast<int>(u);
    const auto part = [&](bool trained) {
      const int64_t count = layout.owned(index, rank, trained).size();
      offset += count;
      return shards_.narrow(0, offset - count, count);
    };
    if (file == nullptr) {
      unit.trained = part(true);
      unit.frozen = part(false);
    }
    unit.storage = std::make_unique<torch_inside::ReleasableStorage>(
        layout.units[u].numel, [this, index] { touch(index); });
  }
}

GatheredUnits::~GatheredUnits() {
  if (file_ != nullptr) file_->file().settle();
}

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
  if (file_ != nullptr) stage(unit);
  const plan::ShardUnit& plan = layout_.units[static_cast<size_t>(unit)];
  const auto part = [&](const at::Tensor& mine, int64_t begin, int64_t end, bool trained) {
    if (begin == end) return;
    if (base::planted(base::Fault::lost_shard) && unit == 0) {
      const int64_t own = layout_.owned(unit, group_.rank(), trained).lo - begin;
      of.storage->flat().narrow(0, begin, end - begin).zero_();
      of.storage->flat().narrow(0, begin + own, mine.numel()).copy_(mine);
      return;
    }
    of.works.push_back(group_.all_gather_uneven(
        mine, of.storage->flat().narrow(0, begin, end - begin), layout_.counts(unit, trained)));
  };
  part(of.trained, 0, plan.trained, true);
  part(of.frozen, plan.trained, plan.numel, false);
  if (file_ != nullptr) read_ahead(unit);
}

int64_t GatheredUnits::owned_numel(int unit) const {
  const int rank = group_.rank();
  return layout_.owned(unit, rank, true).size() + layout_.owned(unit, rank, false).size();
}

/// Begins to read this rank's shard of a unit into memory that peers can read.
void GatheredUnits::begin_read(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  const int64_t numel = owned_numel(unit);
  of.staged = heap_tensor(group_, numel, at::kFloat, memory::Kind::communication);
  of.read = file_->file().read(file_->shard_at(unit), of.staged.data_ptr<float>(), numel * 4);
}

void GatheredUnits::stage(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  if (unit != ahead_) {
    drop_read_ahead();
    begin_read(unit);
  }
  ahead_ = -1;
  file_->file().wait(of.read);
  const int64_t trained = layout_.owned(unit, group_.rank()).size();
  of.trained = of.staged.narrow(0, 0, trained);
  of.frozen = of.staged.narrow(0, trained, of.staged.numel() - trained);
}

/// Of the unit that follows in the direction in which units are gathered.
void GatheredUnits::read_ahead(int unit) {
  const std::vector<int>& order = layout_.forward;
  const auto place = [&](int of) {
    return std::find(order.begin(), order.end(), of) - order.begin();
  };
  const auto here = place(unit);
  const bool back = last_gathered_ >= 0 && place(last_gathered_) > here && unit != layout_.root();
  last_gathered_ = unit;
  const auto next = back ? here - 1 : here + 1;
  if (next < 0 || next >= std::ssize(order)) return;
  ahead_ = order[static_cast<size_t>(next)];
  if (ahead_ == layout_.root() || !released(ahead_)) {
    ahead_ = -1;
    return;
  }
  begin_read(ahead_);
}

void GatheredUnits::drop_read_ahead() {
  if (ahead_ < 0) return;
  Unit& of = units_[static_cast<size_t>(ahead_)];
  file_->file().wait(of.read);
  of.staged = at::Tensor();
  ahead_ = -1;
}

void GatheredUnits::read_shard(int unit, int64_t lo, int64_t hi, float* into) {
  if (file_ == nullptr) {
    // Both parts of a unit's shard follow each other.
    std::copy_n(units_[static_cast<size_t>(unit)].trained.data_ptr<float>() + lo, hi - lo, into);
    return;
  }
  files::BlockFile& file = file_->file();
  file.wait(file.read(file_->shard_at(unit) + lo * 4, into, (hi - lo) * 4));
}

void GatheredUnits::write_shard(int unit, int64_t lo, int64_t hi, const float* from) {
  if (file_ == nullptr) {
    std::copy_n(from, hi - lo, units_[static_cast<size_t>(unit)].trained.data_ptr<float>() + lo);
    return;
  }
  drop_read_ahead();
  files::BlockFile& file = file_->file();
  file.wait(file.write(file_->shard_at(unit) + lo * 4, from, (hi - lo) * 4));
}

void GatheredUnits::await(int unit) {
  Unit& of = units_[static_cast<size_t>(unit)];
  LOCKSTEP_ASSERT(of.gathered, "a gather has begun");
  for (Work& work : of.works) work.wait();
  of.works.clear();
  if (file_ != nullptr) of.staged = of.trained = of.frozen = at::Tensor();  // peers have read it
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
  if (used_) used_(unit);
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
