/// What a rank knows of ranks on other hosts. Their control lines are in other regions; here are
/// copies, brought up to date by what those ranks say over the engine's control channel:
///
///   hello    once: who shares a host with whom
///   call     what a rank came to a collective with, to every member on other hosts, with the list
///            or text that members here would read in its heap
///   broken   a group has ended, and why
///   abort    the job has ended, and why: by the rank that fails, else by the first that finds its
///            own host's region aborted
///   message  of the user: send and recv
///
/// Whoever waits takes in what has come. A rank that computes hears nothing until its next call.
///
/// Moves   per rank and collective one message of about 100 bytes to each member on other hosts
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lockstep/net/control.h"
#include "lockstep/net/seats.h"
#include "lockstep/net/transport.h"
#include "lockstep/net/world.h"

namespace lockstep::net {

class RemoteRanks {
 public:
  /// `here`: the ranks of this host, this one among them. `base`: what addresses in descriptors are
  /// distances from.
  RemoteRanks(std::shared_ptr<Region> region, const char* base,
              std::unique_ptr<ControlChannel> channel, int rank, const std::vector<int>& here);

  /// Until every rank has said hello. Throws CommError: the time is over (who has not), or hosts
  /// that do not fit together.
  void meet(std::chrono::milliseconds timeout);

  bool is_here(int world_rank) const { return here_[static_cast<size_t>(world_rank)]; }
  /// Ranks of the job by host, hosts in the order of their first ranks.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }

  /// The copy of a rank's lines while a group uses them. Stays where it is.
  GroupLines& lines(int world_rank, Seat seat);
  /// "Rank 2, on host node7, was last seen in backward of step 3; ..."
  std::string last_seen(int world_rank, const std::string& who);

  /// Takes in what has come. Any thread.
  void take_in();

  /// This rank has come to collective `sequence` of the group where it has `seat`. `text`: of
  /// gather_text.
  void tell_call(Seat seat, std::span<const int> members, const Descriptor& mine, const void* list,
                 uint32_t sequence, std::string_view text);
  void tell_broken(Seat seat, std::span<const int> members, uint64_t number, bool died,
                   const std::string& message);
  /// Says on what this host's region was aborted with, if nobody has. Waits until it is on its way,
  /// at most a second. Neither this nor tell_broken throws: who is not told finds out by itself.
  void pass_on_abort(bool died);
  /// Whether a death elsewhere ended the job or a group, so that survivors end alike.
  bool somebody_died() const { return somebody_died_.load(std::memory_order_acquire); }

  struct UserMessage {
    int64_t count = 0;
    int32_t tag = 0;
    DType type = DType::u8;
    std::string data;
  };
  void send(Seat seat, int to, DType type, int64_t count, int tag, std::string_view data);
  /// Counts the messages of a rank that have come.
  Signal& messages_of(int from, Seat seat);
  /// The oldest of them that was not taken; there is one.
  UserMessage take_message(int from, Seat seat);

  /// Drops the copy of a rank's lines: their group is gone here.
  void forget(int world_rank, Seat seat);

  /// Until what was said is on its way; false if it is not after `patience`.
  bool flush(std::chrono::milliseconds patience);

 private:
  struct Remote {
    GroupLines lines;
    std::array<std::string, 2> lists;  // by slot
    std::array<std::string, 2> texts;
    Signal messages_come;
    std::deque<UserMessage> messages;
  };
  struct Status {
    std::string host;
    int64_t step = -1;
    std::string phase;
    Seat seat{-1, 0};  // of its last call; -1: it has made none
    uint32_t sequence = 0;
  };

  Remote& remote(int world_rank, Seat seat);
  void take(int from, std::string_view message);
  int64_t address_of(const std::string& bytes) const;
  void take_call(int from, Seat seat, std::string_view message);
  void send_to(std::span<const int> members, const std::string& message);
  void tell_in_need(std::span<const int> members, const std::string& message);

  const std::shared_ptr<Region> region_;
  const char* const base_;
  const int rank_;
  const std::string host_name_;
  std::vector<bool> here_;
  std::vector<std::vector<int>> hosts_;
  std::atomic<bool> somebody_died_{false};

  std::mutex mutex_;  // guards what follows
  std::unique_ptr<ControlChannel> channel_;
  std::map<std::tuple<int, int, uint32_t>, std::unique_ptr<Remote>> remotes_;  // by rank and seat
  std::vector<Status> statuses_;                                               // by world rank
  std::vector<int> first_of_host_;  // that a rank has said; -1: no hello from it yet
};

}  // namespace lockstep::net
