#include "lockstep/net/group.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/net/group_core.h"
#include "lockstep/net/plan_runner.h"

namespace lockstep::net {

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::~Group() = default;

int Group::rank() const { return impl_->rank; }
int Group::size() const { return impl_->size(); }
const std::string& Group::name() const { return impl_->name; }
const std::vector<int>& Group::members() const { return impl_->members; }
Endpoint& Group::endpoint() const { return impl_->endpoint; }
std::vector<std::vector<int>> Group::hosts() const { return impl_->hosts(); }

HeapBlock Group::allocate(int64_t bytes) {
  return {impl_->endpoint.impl().heap->allocate(bytes), bytes};
}

void Group::send(const void* data, int64_t count, DType type, int to, int tag) {
  impl_->send(data, count, type, to, tag);
}

void Group::recv(void* data, int64_t count, DType type, int from, int tag) {
  impl_->receive(data, count, type, from, tag);
}

std::vector<std::string> Group::gather_text(const std::string& mine) {
  return impl_->gather_text(Operation::gather_text, mine, 0);
}

std::shared_ptr<Group> Group::subgroup(const std::vector<int>& ranks, const std::string& name) {
  std::string list;
  for (const int r : ranks) {
    if (r < 0 || r >= size()) {
      throw UsageError(base::str("subgroup \"", name, "\": rank ", r, " is not among the ", size(),
                                 " ranks of \"", impl_->name, "\""));
    }
    if (std::count(ranks.begin(), ranks.end(), r) > 1) {
      throw UsageError(base::str("subgroup \"", name, "\": rank ", r, " comes twice"));
    }
    list += base::str(list.empty() ? "" : ",", r);
  }
  // Group numbers are agreed: the largest that any rank would take next. Groups of one call share
  // it, since no rank is in two of them.
  std::atomic<int>& next = impl_->endpoint.impl().next_group;
  const auto answers =
      impl_->gather_text(Operation::subgroup, base::str(next.load(), " ", list), base::fnv1a(name));
  int id = 0;
  for (int r = 0; r < size(); ++r) {
    const std::string& answer = answers[r];
    const size_t space = answer.find(' ');
    int theirs = 0;
    std::from_chars(answer.data(), answer.data() + space, theirs);
    id = std::max(id, theirs);
    const bool in_mine = std::count(ranks.begin(), ranks.end(), r) > 0;
    if (in_mine && answer.substr(space + 1) != list) {
      impl_->fail(base::str("rank ", r, " asks for \"", name, "\" of ranks ",
                            answer.substr(space + 1), ", this rank for ranks ", list, "."));
    }
  }
  if (id >= kMaxGroups) {
    throw UsageError(base::str("subgroup \"", name, "\": a job can make ", kMaxGroups,
                               " groups; make them once, not every step"));
  }
  next.store(id + 1);
  if (std::count(ranks.begin(), ranks.end(), rank()) == 0) return nullptr;
  std::vector<int> members;
  for (const int r : ranks) members.push_back(impl_->members[r]);
  auto impl = std::make_unique<Impl>(impl_->endpoint, impl_->endpoint.impl().self.lock(), id, name,
                                     std::move(members));
  impl->timeout = impl_->timeout;
  impl->algorithms = impl_->algorithms;
  impl->connect();
  return std::shared_ptr<Group>(new Group(std::move(impl)));
}

void Group::abort(const std::string& message) {
  impl_->endpoint.abort(base::str("rank ", impl_->endpoint.rank(), ": ", message));
}

void Group::set_timeout(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    throw UsageError(base::str("timeout of ", timeout.count(), " ms: must be positive"));
  }
  impl_->timeout = timeout;
}

void Group::set_algorithms(plan::AlgorithmTable algorithms) {
  impl_->algorithms = std::move(algorithms);
  if (impl_->plans) impl_->plans->forget();  // a hierarchical plan is of the hosts it was made for
}

const plan::AlgorithmTable& Group::algorithms() const { return impl_->algorithms; }

void Group::restart_modelled_clock() {
  if (impl_->network != nullptr) impl_->runner().transport().restart_clock();
}

double Group::modelled_seconds() const {
  return impl_->plans ? impl_->plans->transport().clock_s() : 0;
}

const Ledger& Group::ledger() const { return impl_->read_ledger(); }
void Group::reset_ledger() {
  impl_->ledger = {};
  impl_->ticks = {};
}

}  // namespace lockstep::net
