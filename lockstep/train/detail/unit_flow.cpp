#include "lockstep/train/detail/unit_flow.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::detail {
namespace {

bool is_in(const std::vector<int>& list, int unit) {
  return std::find(list.begin(), list.end(), unit) != list.end();
}

std::string name_of(const plan::ShardLayout& layout, int64_t unit) {
  const std::string& name = layout.units[static_cast<size_t>(unit)].name;
  return name.empty() ? "the root" : base::str("unit \"", name, "\"");
}

}  // namespace

UnitFlow::UnitFlow(const plan::ShardLayout& layout, state::GatheredUnits& units,
                   ProcessGroup& group, const Options& options,
                   std::function<void(int)> before_release, std::function<void()> changed)
    : layout_(layout),
      units_(units),
      group_(group),
      options_(options),
      before_release_(std::move(before_release)),
      changed_(std::move(changed)),
      root_(layout.root()),
      order_(static_cast<int>(layout.units.size()) - (root_ >= 0 ? 1 : 0)),
      flow_(layout.units.size()) {
  units_.on_use([this](int unit) { use(unit); });
}

UnitFlow::~UnitFlow() {
  units_.on_use({});
  // What was gathered ahead and not used. On the way out with an error, peers may be gone.
  if (std::uncaught_exceptions() > 0) return;
  try {
    for (size_t u = 0; u < flow_.size(); ++u) finish(static_cast<int>(u));
  } catch (const std::exception&) {
    // The group has ended, and whoever uses it next is told why.
  }
}

void UnitFlow::shards_are_written() { written_by_ = torch_inside::operators_seen(); }

void UnitFlow::drop_old() {
  if (!written_by_) return;
  written_by_.reset();
  release_all();
  changed_();
}

/// An operator takes parameters of `unit`.
void UnitFlow::use(int unit) {
  const uint64_t operators = torch_inside::operators_seen();
  if (written_by_ && *written_by_ != operators) drop_old();
  flow_[static_cast<size_t>(unit)].used_by = operators;
  if (unit == root_ || unit == current_) return fetch(unit);
  current_ = unit;
  order_.come_to(unit);
  const std::vector<int> ahead = order_.ahead(options_.prefetch);
  make_room(unit, ahead, operators);
  if (units_.released(unit)) gather(unit);
  for (const int next : ahead) {
    if (units_.released(next)) gather(next);
  }
  finish(unit);
}

void UnitFlow::fetch(int unit) {
  if (units_.released(unit)) gather(unit);
  finish(unit);
}

/// Frees what is neither used now nor about to be.
void UnitFlow::make_room(int unit, const std::vector<int>& ahead, uint64_t operators) {
  const bool keeps = !backward_ && !options_.reshard_after_forward && at::GradMode::is_enabled();
  if (backward_) flow_[static_cast<size_t>(unit)].kept = false;
  for (size_t u = 0; u < flow_.size(); ++u) {
    const int other = static_cast<int>(u);
    if (other == unit || other == root_ || units_.released(other)) continue;
    if (keeps) flow_[u].kept = true;
    const bool at_hand = operators > 0 && flow_[u].used_by == operators;
    if (!flow_[u].kept && !at_hand && !is_in(ahead, other)) release(other);
  }
}

void UnitFlow::gather(int unit) {
  Unit& of = flow_[static_cast<size_t>(unit)];
  units_.gather(unit);
  if (!backward_) of.gathered = gathers_++;
  // Behind the data, so that it does not wait for peers here.
  of.came = at::empty({group_.size()}, at::kLong);
  of.told = group_.all_gather(at::full({1}, int64_t{unit}, at::kLong), of.came);
}

/// The gather is complete, and it was of this unit on every rank.
void UnitFlow::finish(int unit) {
  Unit& of = flow_[static_cast<size_t>(unit)];
  if (!of.told) return;
  units_.await(unit);
  of.told->wait();
  of.told.reset();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const int64_t theirs = of.came.data_ptr<int64_t>()[rank];
    if (theirs == unit) continue;
    const std::string message = base::str(
        "[rank ", group_.rank(), " of ", group_.size(), "] fully_shard on \"", group_.name(),
        "\": rank ", rank, " has come to ", name_of(layout_, theirs),
        " where this rank has come to ", name_of(layout_, unit),
        ".\n  All ranks must run the same layers in the same order: forward, backward, and any "
        "other operator that takes a parameter.");
    group_.abort(message);
    throw CommError(message);
  }
}

void UnitFlow::release(int unit) {
  if (units_.released(unit)) return;
  finish(unit);
  before_release_(unit);
  units_.release(unit);
  flow_[static_cast<size_t>(unit)].kept = false;
}

void UnitFlow::release_all() {
  for (size_t u = 0; u < flow_.size(); ++u) release(static_cast<int>(u));
  current_ = -1;
}

void UnitFlow::begin_backward() {
  drop_old();
  order_.begin(UnitOrder::Pass::backward);
  backward_ = true;
  current_ = -1;
  const std::vector<int> ahead = order_.ahead(options_.prefetch + 1);
  if (!ahead.empty()) make_room(ahead.front(), ahead, 0);
  for (const int next : ahead) {
    if (units_.released(next)) gather(next);
  }
}

void UnitFlow::end_backward() {
  order_.begin(UnitOrder::Pass::forward);
  backward_ = false;
  release_all();
}

std::vector<int> UnitFlow::last_gathered_first() const {
  std::vector<int> order;
  for (size_t u = 0; u < flow_.size(); ++u) {
    if (static_cast<int>(u) != root_) order.push_back(static_cast<int>(u));
  }
  std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
    return flow_[static_cast<size_t>(a)].gathered > flow_[static_cast<size_t>(b)].gathered;
  });
  if (root_ >= 0) order.push_back(root_);
  return order;
}

}  // namespace lockstep::detail
