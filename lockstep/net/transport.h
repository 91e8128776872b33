/// Messages between the members of a group, as collective plans need them (plan_runner.h): what an
/// engine brings whose ranks do not reach each other's memory, or whose algorithm is not direct.
///
/// Messages from one member to another arrive in the order in which they were sent, and match the
/// receives by that order. Several may be under way at once, in both directions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::net {

class Transport {
 public:
  virtual ~Transport() = default;

  /// Starts to send; `data` stays untouched until everything is complete.
  virtual void send(int peer, const void* data, int64_t bytes) = 0;
  /// Starts to receive the next message of `peer`, which has just as many bytes.
  virtual void receive(int peer, void* data, int64_t bytes) = 0;

  /// Moves what can be moved now. True: all that was started is complete, and its memory is the
  /// caller's again.
  virtual bool progress() = 0;

  /// Bytes that have arrived at this rank so far, counted where they are copied.
  int64_t bytes_received() const { return bytes_received_; }

  /// Whether something of `peer` is missing: its message, or its taking one of ours.
  virtual bool awaits(int peer) const = 0;
  /// Sleeps for a moment, or until there may be something to do.
  virtual void nap() = 0;

  /// Of a modelled network: the rank's time on it since its clock was restarted. 0: the network is
  /// a real one.
  virtual void restart_clock() {}
  virtual double clock_s() const { return 0; }

 protected:
  int64_t bytes_received_ = 0;
};

/// An engine whose ranks send messages: it connects the members of a group.
class MessageEngine {
 public:
  virtual ~MessageEngine() = default;

  virtual const char* name() const = 0;  // "mpi"
  /// All members call it together. `members`: ranks of the job, in group order; `rank`: this one's
  /// place among them; `id`: no other group of the job has it at the time.
  virtual std::unique_ptr<Transport> connect(const std::vector<int>& members, int rank, int id) = 0;
  /// The rank leaves in good order, together with all others.
  virtual void finish() {}
};

}  // namespace lockstep::net
