#include "lockstep/worker/message_engine.h"

#include "lockstep/comm/engines/c10d.h"
#include "lockstep/launch/mpi_start.h"

namespace lockstep::worker {

std::shared_ptr<net::MessageEngine> message_engine(const Environment& environment) {
  if (environment.world_size == 1) return nullptr;
  if (environment.engine == "mpi") {
    return net::load_mpi_engine(launch::require_mpi_here(launch::own_variable));
  }
  if (environment.engine == "gloo") return make_gloo_engine(environment.endpoint.timeout);
  return nullptr;
}

}  // namespace lockstep::worker
