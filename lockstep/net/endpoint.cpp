#include "lockstep/net/endpoint.h"

#include <unistd.h>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/net/group_core.h"
#include "lockstep/net/transport.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::net {

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// A group leaves its memory to the endpoint: the world goes while that is still whole.
Endpoint::~Endpoint() { impl_->world.reset(); }

std::shared_ptr<Endpoint> Endpoint::join(std::shared_ptr<Region> region, int rank,
                                         bool direct_memory, const EndpointOptions& options) {
  const int ranks = region->ranks();
  if (rank < 0 || rank >= ranks) {
    throw UsageError(base::str("rank ", rank, " is not among the ", ranks, " ranks of the job"));
  }
  if (options.timeout.count() <= 0) {
    throw UsageError(base::str("timeout of ", options.timeout.count(), " ms: must be positive"));
  }
  for (int peer = 0; direct_memory && peer < ranks; ++peer) {
    const int32_t pid = region->impl().control(peer).pid.load();
    if (pid != 0 && pid != getpid()) {
      throw UsageError("direct memory needs ranks that are threads of one process");
    }
  }
  auto impl = std::make_unique<Impl>();
  impl->heap = std::make_shared<Heap>(region, region->impl().heap(rank), region->impl().heap_bytes);
  impl->region = std::move(region);
  impl->rank = rank;
  impl->direct_memory = direct_memory;
  impl->options = options;

  RankControl& control = impl->region->impl().control(rank);
  int32_t nobody = 0;
  control.pid_started.store(start_time_of(getpid()), std::memory_order_relaxed);
  if (!control.pid.compare_exchange_strong(nobody, getpid())) {
    throw UsageError(base::str("rank ", rank, " has joined already (process ", nobody, ")"));
  }
  impl->seats.emplace(*impl->region, rank);
  std::shared_ptr<Endpoint> endpoint(new Endpoint(std::move(impl)));
  endpoint->impl_->self = endpoint;
  endpoint->set_status(-1, "start");
  endpoint->arrive();
  return endpoint;
}

void Endpoint::arrive() {
  try {
    pass(Point::join);
    if (impl_->options.engine) {
      meet_other_hosts();
      world()->impl_->connect();
    }
  } catch (const Error& error) {
    fail(error.what(), error.exit_code());  // the caller has no endpoint to say it by
    throw;
  }
}

void Endpoint::meet_other_hosts() {
  const EndpointOptions& options = impl_->options;
  const std::vector<int> here = region().ranks_here();
  if (std::ssize(here) == size()) return;
  auto control = options.engine->open_control();
  if (!control) {
    throw EnvironmentError(base::str("[rank ", rank(), " of ", size(), "] engine ",
                                     options.engine->name(), " keeps to one host, but only ",
                                     here.size(), " of the ranks are on this one.\n",
                                     "  Use --set comm.engine=mpi."));
  }
  const char* const base = impl_->direct_memory ? nullptr : region().impl().base;
  impl_->remote =
      std::make_unique<RemoteRanks>(impl_->region, base, std::move(control), rank(), here);
  impl_->remote->meet(options.timeout);
}

int Endpoint::rank() const { return impl_->rank; }
int Endpoint::size() const { return impl_->region->ranks(); }
Region& Endpoint::region() const { return *impl_->region; }

std::shared_ptr<Group> Endpoint::world() {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->world) {
    std::vector<Seats::Member> everyone;
    for (int rank = 0; rank < size(); ++rank) everyone.push_back({rank, kWorldSeat});
    impl_->world.reset(new Group(std::make_unique<Group::Impl>(*this, nullptr, "world", everyone)));
  }
  // The handle keeps the endpoint, and the endpoint keeps its world.
  return {impl_->self.lock(), impl_->world.get()};
}

void Endpoint::set_status(int64_t step, const char* phase, const std::string& detail) {
  const std::lock_guard lock(impl_->mutex);
  RankControl& control = impl_->region->impl().control(impl_->rank);
  control.step.store(step, std::memory_order_relaxed);
  control.phase.set(phase);
  control.detail.set(detail);
}

void Endpoint::fail(const std::string& message, int exit_code) {
  {
    const std::lock_guard lock(impl_->mutex);
    RankControl& control = impl_->region->impl().control(impl_->rank);
    control.exit_code.store(exit_code, std::memory_order_release);
    control.error.set(message);
  }
  abort(base::str("rank ", impl_->rank, " failed: ", message));
}

void Endpoint::abort(const std::string& message) {
  impl_->region->abort(message);
  if (impl_->remote) impl_->remote->pass_on_abort(/*died=*/false);
}

void Endpoint::pass(Point point) const {
  if (impl_->options.at_point) impl_->options.at_point(point);
}

void Endpoint::finish() {
  // A message may be on its way to a peer that would find its sender gone.
  if (impl_->options.engine) world()->barrier();
  pass(Point::finish);
  RankControl& control = impl_->region->impl().control(impl_->rank);
  control.finished.store(1, std::memory_order_release);
  if (impl_->remote) impl_->remote->flush(impl_->options.timeout);
  if (impl_->options.engine) impl_->options.engine->finish();
}

}  // namespace lockstep::net
