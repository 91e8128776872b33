/// Which of a rank's lines in the region its groups use, and when lines may be used again.
///
///   free --take--> taken --the group is made, and freed here--> left --all others left--> free
///
/// Each rank takes its own seats and tells the other members of a group: nothing has to be agreed,
/// so groups may be made by several threads at once. A rank that frees a group leaves its seat; its
/// lines stay as they are until every member has left, for one that is slower may still read them,
/// and so does the memory that they name. All is then cleared before the seat is taken again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/net/control.h"

namespace lockstep::net {

class Region;

/// A rank's lines while one group uses them.
struct Seat {
  int lines = 0;     // their number among the rank's; -1: none
  uint32_t use = 0;  // groups that the lines have served, this one included
};

/// The seat of the world, on every rank.
inline constexpr Seat kWorldSeat{0, 1};

class Seats {
 public:
  Seats(const Region& region, int rank);

  /// Lines as new. None if the rank is in kMaxGroups groups.
  Seat take();
  /// No other rank has heard of the seat, or all know that its group is not to be.
  void give_back(Seat seat);
  /// The group is not made here, but may have been by others: they are told so when they call. The
  /// seat is not used again.
  void abandon(Seat seat, const std::string& message);

  struct Member {
    int rank;  // of the job
    Seat seat;
  };
  /// This rank makes no more calls in the group. `memory` is kept until the others have left too.
  void leave(Seat seat, std::vector<Member> others, std::shared_ptr<void> memory);

 private:
  struct Left {
    int lines;
    std::vector<Member> others;  // who may still read this rank's lines
    std::shared_ptr<void> memory;
  };

  GroupLines& lines(int number) const;
  void clear(int number) const;
  bool has_left(const Member& member, bool look_at_process) const;
  /// Frees what all have left; returns its memory, to be given up without the lock.
  std::vector<std::shared_ptr<void>> free_left(bool look_at_processes);

  const Region& region_;
  const int rank_;
  std::mutex mutex_;  // guards what follows
  std::array<uint32_t, kMaxGroups> uses_{};
  std::array<bool, kMaxGroups> taken_{};
  std::vector<Left> left_;
};

}  // namespace lockstep::net
