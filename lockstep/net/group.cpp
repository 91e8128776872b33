#include "lockstep/net/group.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/net/group_core.h"
#include "lockstep/net/plan_runner.h"

namespace lockstep::net {

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::~Group() { Impl::leave(std::move(impl_)); }

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

void Group::Impl::leave(std::unique_ptr<Impl> impl) {
  const std::shared_ptr<Endpoint> kept = std::move(impl->keeps_endpoint);  // goes last
  if (impl->engine != nullptr) impl->plans.reset();
  if (impl->finished.empty()) {
    // Complete calls have been through with these on every rank. After a call that failed a slower
    // rank may still look.
    impl->plans.reset();
    impl->staging = {};
  }
  Seats& seats = *impl->endpoint.impl().seats;
  const Seat seat = impl->seats[impl->rank];
  std::vector<Seats::Member> others;
  for (int r = 0; r < impl->size(); ++r) {
    // Those of other hosts read nothing here.
    if (r == impl->rank || impl->is_remote(r)) continue;
    others.push_back({impl->members[r], impl->seats[r]});
  }
  seats.leave(seat, std::move(others), std::move(impl));
}

namespace {

/// A seat that is offered to the others while they agree on a group.
class Offer {
 public:
  Offer(Seats& seats, std::string regret)
      : seats_(seats), seat_(seats.take()), regret_(std::move(regret)) {}
  ~Offer() {
    if (is_open_ && seat_.lines >= 0) seats_.abandon(seat_, regret_);
  }
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  Seat seat() const { return seat_; }
  void accept() { is_open_ = false; }
  void withdraw() {
    if (seat_.lines >= 0) seats_.give_back(seat_);
    is_open_ = false;
  }

 private:
  Seats& seats_;
  Seat seat_;
  std::string regret_;  // what is said if the group is not made
  bool is_open_ = true;
};

}  // namespace

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
  std::optional<Offer> offer;
  if (std::count(ranks.begin(), ranks.end(), rank()) > 0) {
    offer.emplace(*impl_->endpoint.impl().seats,
                  base::str("[rank ", rank(), " of ", size(), "] subgroup on \"", impl_->name,
                            "\": this rank left the call before \"", name, "\" was made."));
  }
  const Seat mine = offer ? offer->seat() : Seat{};
  const std::string answer = base::str(mine.lines, " ", mine.use, " ", list);
  const auto answers = impl_->gather_text(Operation::subgroup, answer, base::fnv1a(name));
  std::vector<Seat> seats(answers.size());
  std::vector<std::string> lists(answers.size());
  for (size_t r = 0; r < answers.size(); ++r) {
    std::istringstream(answers[r]) >> seats[r].lines >> seats[r].use >> lists[r];
  }
  for (int r = 0; r < size(); ++r) {
    if (std::count(ranks.begin(), ranks.end(), r) > 0 && lists[r] != list) {
      impl_->fail(base::str("rank ", r, " asks for \"", name, "\" of ranks ", lists[r],
                            ", this rank for ranks ", list, "."));
    }
  }
  for (int r = 0; r < size(); ++r) {
    if (seats[r].lines >= 0) continue;
    if (offer) offer->withdraw();
    throw UsageError(base::str("subgroup \"", name, "\": rank ", r, " is in ", kMaxGroups,
                               " groups, as many as a rank can be in at a time (those that another "
                               "member has not freed yet count); free some"));
  }
  impl_->pass(Point::subgroup);
  if (!offer) return nullptr;
  offer->accept();
  std::vector<Seats::Member> everyone;
  for (const int r : ranks) everyone.push_back({impl_->members[r], seats[r]});
  auto impl =
      std::make_unique<Impl>(impl_->endpoint, impl_->endpoint.impl().self.lock(), name, everyone);
  impl->timeout = impl_->timeout;
  impl->take_table(impl_->given_algorithms);
  // From here on it is left like any other group, whatever happens.
  const std::shared_ptr<Group> group(new Group(std::move(impl)));
  group->impl_->connect();
  return group;
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
  impl_->take_table(std::move(algorithms));
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
