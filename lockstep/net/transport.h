/// Messages between the members of a group, as collective plans need them (plan_runner.h): what an
/// engine brings whose ranks do not reach each other's memory, or whose algorithm is not direct.
///
/// Messages from one member to another arrive in the order in which they were sent, and match the
/// receives by that order. Several may be under way at once, in both directions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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
  virtual int64_t bytes_received() const { return bytes_received_; }
  /// Of them, those that came from other hosts, where the transport knows of hosts.
  virtual int64_t bytes_across() const { return 0; }

  /// Messages, or pieces of long ones, that have come or gone so far: it grows while data move.
  virtual int64_t completions() const { return completions_; }

  /// Whether something of `peer` is missing: its message, or its taking one of ours.
  virtual bool awaits(int peer) const = 0;
  /// Sleeps for a moment, or until there may be something to do.
  virtual void nap() = 0;

  /// The call has failed, and its caller may free the memory: as far as the engine can, nothing
  /// reads or writes it after this. Nothing more will be started.
  virtual void abandon() {}

  /// Of a modelled network: the rank's time on it since its clock was restarted. 0: the network is
  /// a real one.
  virtual void restart_clock() {}
  virtual double clock_s() const { return 0; }

 protected:
  int64_t bytes_received_ = 0;
  int64_t completions_ = 0;
};

/// Short messages between any two ranks of a job, which come unasked: what ranks of different hosts
/// say of their calls (remote_ranks.h). One thread at a time.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  /// Takes the message and starts to send it. Those to one rank arrive in order.
  virtual void send(int to, std::string message) = 0;
  /// The next message that is here; never waits. False: there is none.
  virtual bool receive(int& from, std::string& message) = 0;
  /// Moves what can be moved now. True: all that was sent has left this rank.
  virtual bool flush() = 0;
};

/// Says `mine` to all members of a group, and returns what each of them said, in group order. All
/// members call it together. Throws what a collective of the group throws.
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

/// An engine whose ranks send messages: it connects the members of a group.
class MessageEngine {
 public:
  virtual ~MessageEngine() = default;

  virtual const char* name() const = 0;  // "mpi": one of plan/engines.h
  /// All members call it together, when their group is made. `members`: ranks of the job, in group
  /// order; `rank`: this one's place among them; `id`: no other group of any of the members has
  /// it at the time; `exchange`: for what they must know of each other.
  virtual std::unique_ptr<Transport> connect(const std::vector<int>& members, int rank, int id,
                                             const Exchange& exchange) = 0;
  /// Between the ranks of the job, for one that spans several hosts; null: this engine does not.
  virtual std::unique_ptr<ControlChannel> open_control() { return nullptr; }
  /// The rank leaves in good order, together with all others.
  virtual void finish() {}
};

}  // namespace lockstep::net
