/// TCP sockets of launchers on several nodes: where node 0 listens, and how the others come to it.
/// What they say then: rendezvous_channel.h.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/launch/descriptor.h"

namespace lockstep::launch::rendezvous {

using Clock = std::chrono::steady_clock;

/// Whether every address of the host is the loopback's: only processes of this machine reach it.
/// Throws EnvironmentError for a host that has no address.
bool is_loopback(const std::string& host, int port);

/// Listens on HOST:PORT, and on no other address. Throws EnvironmentError.
Descriptor listen_on(const std::string& host, int port);

/// A new connection, if one waits; errno says why there is none.
std::optional<Descriptor> accept_from(const Descriptor& listener);

/// A connection to HOST:PORT; nothing while nobody listens there. Throws EnvironmentError for a
/// host that has no address.
std::optional<Descriptor> connect_to(const std::string& host, int port);

/// Waits until there is something to read. False: the time is over.
bool wait_readable(int fd, Clock::time_point deadline);

/// Milliseconds until then, for poll: 0 to 1000, so that a wait looks at the clock again.
int milliseconds_until(Clock::time_point deadline);

}  // namespace lockstep::launch::rendezvous
