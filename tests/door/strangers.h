/// Processes that come to a socket of a job and are no part of it: what they say, and how they go.
#pragma once

#include <functional>
#include <random>
#include <string>

#include "lockstep/launch/descriptor.h"

namespace lockstep::testing {

enum class Stranger {
  garbage,    // random bytes
  truncated,  // the first bytes of what is expected, then nothing
  huge,       // the announcement of 2^31 bytes, then 64 KiB of them
  replayed,   // what somebody who was let in has said before
  drip,       // a byte every 50 ms
  silent,     // nothing
  reset,      // gone as soon as it has come
};

inline constexpr Stranger kStrangers[] = {Stranger::garbage,  Stranger::truncated, Stranger::huge,
                                          Stranger::replayed, Stranger::drip,      Stranger::silent,
                                          Stranger::reset};

/// How a socket is reached, and what those kinds say to it.
struct Socket {
  /// A new connection; none if the queue of the socket is full.
  std::function<launch::Descriptor()> connect;
  std::string expected;
  std::string huge;
  std::string replayed;
};

/// `count` strangers of the kind, up to 250 of them at once; all are gone when it returns. Returns
/// how many could connect.
int send_strangers(const Socket& socket, Stranger kind, int count, std::mt19937& random);

/// A connection to 127.0.0.1:port that leaves no port behind when it is closed; none (-1) if nobody
/// listens.
launch::Descriptor connect_to_loopback(int port);

/// Seconds until the other end has closed the connection, whatever it says before; at most 20.
double seconds_until_closed(const launch::Descriptor& connection);

/// Open descriptors of a process, and its resident memory.
int descriptors_of(pid_t pid);
int64_t resident_kib_of(pid_t pid);

}  // namespace lockstep::testing
