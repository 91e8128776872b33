/// Engines over process groups of c10d, LibTorch's own communication: its sends and receives carry
/// the messages of collective plans (net/transport.h). The order of additions stays the plan's.
///
///   gloo   TCP over the loopback address
///
/// A group of Lockstep has a c10d process group of its own. Members find each other through the
/// region (exchange_store.h), so no store's server, port or file has to be kept or cleaned up.
#pragma once

#include <chrono>
#include <memory>

#include "lockstep/net/transport.h"

namespace lockstep {

/// `timeout`: how long a rank waits for its peers while a group is being connected; after that the
/// group's own watchdog decides. Throws EnvironmentError: built without Gloo's headers, or with a
/// LibTorch that has no Gloo.
std::shared_ptr<net::MessageEngine> make_gloo_engine(std::chrono::milliseconds timeout);

}  // namespace lockstep
