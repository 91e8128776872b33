/// Where node 0 lets the others in: it listens, and talks to whoever comes until that one has shown
/// the job's token, has shown that it does not know it, or has taken too long.
///
/// Whoever comes may be anybody who reaches the port. So node 0 never waits for one of them: all
/// are served from one poll. Each has 5 s, at most 64 may be on the way at once, and one more puts
/// the oldest out: who knows the token is through within a round trip, and comes again if it was
/// put out. So a stranger cannot end the wait or make it longer, and costs a descriptor and a few
/// KiB.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "lockstep/launch/rendezvous_channel.h"
#include "lockstep/launch/rendezvous_wire.h"

namespace lockstep::launch {

class RendezvousDoor {
 public:
  /// Listens on HOST:PORT. Throws EnvironmentError.
  RendezvousDoor(const std::string& host, int port, std::string token);

  struct Guest {
    rendezvous::Channel channel;
    rendezvous::Message hello;  // the first that it said
  };
  /// The next that has shown the token. Nothing: the time is over.
  std::optional<Guest> next(rendezvous::Clock::time_point deadline);

  /// Why the last one was put out; empty if none was.
  const std::string& put_out() const { return put_out_; }

 private:
  struct Stranger {
    rendezvous::Channel channel;
    rendezvous::Clock::time_point deadline;
  };

  void wait(rendezvous::Clock::time_point deadline);
  void accept_those_who_wait();
  void put_out_the_late();

  std::string token_;
  Descriptor listener_;
  std::deque<Stranger> strangers_;  // the oldest first
  std::string put_out_;
};

}  // namespace lockstep::launch
