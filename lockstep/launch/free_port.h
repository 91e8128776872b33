/// A TCP port of this host that nobody listens on at this moment.
#pragma once

namespace lockstep::launch {

/// The number of such a port, from the range that the system hands out; 0 where there is no
/// network.
int free_port();

}  // namespace lockstep::launch
