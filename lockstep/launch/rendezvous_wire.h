/// What launchers on several nodes say to each other: JSON objects in frames over TCP. The first
/// bytes of each frame name protocol and version, so that anything else is refused at once.
///
///   frame   "lockstep-nodes" | version, 2 bytes | length, 4 bytes | JSON      big-endian
///
/// There is no password: whoever reaches the port can claim a place. Use it inside a cluster.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lockstep/launch/descriptor.h"

namespace lockstep::launch::rendezvous {

using Message = nlohmann::json;
using Clock = std::chrono::steady_clock;

/// The other end is gone, or speaks something else: `why` says which.
struct Lost {
  std::string why;
};

/// Listens on the port, on the loopback alone for a host of that name. Throws EnvironmentError.
Descriptor listen_on(const std::string& host, int port);

/// A new connection, if one waits.
std::optional<Descriptor> accept_from(const Descriptor& listener);

/// A connection to HOST:PORT; nothing while nobody listens there. Throws EnvironmentError for a
/// host that has no address.
std::optional<Descriptor> connect_to(const std::string& host, int port);

/// Throws Lost.
void send(const Descriptor& connection, const Message& message);
/// Waits for a whole frame; call it when there is something to read. Throws Lost.
Message receive(const Descriptor& connection);

/// Waits until one of the two can be read (or accepted from). False: the time is over.
bool wait_readable(const Descriptor& connection, Clock::time_point deadline);

}  // namespace lockstep::launch::rendezvous
