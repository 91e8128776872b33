/// The engine that carries a rank's tensors as messages.
#pragma once

#include <memory>

#include "lockstep/net/transport.h"
#include "lockstep/worker/environment.h"

namespace lockstep::worker {

/// What `environment.engine` names; null where ranks use each other's memory, or where there is one
/// only. Throws EnvironmentError: the engine is not here, or its launcher did not start this
/// process.
std::shared_ptr<net::MessageEngine> message_engine(const Environment& environment);

}  // namespace lockstep::worker
