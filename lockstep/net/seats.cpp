#include "lockstep/net/seats.h"

#include <algorithm>

#include "lockstep/net/region.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::net {

Seats::Seats(const Region& region, int rank) : region_(region), rank_(rank) {
  taken_[kWorldSeat.lines] = true;
  uses_[kWorldSeat.lines] = kWorldSeat.use;
  lines(kWorldSeat.lines).use.store(kWorldSeat.use, std::memory_order_relaxed);
}

GroupLines& Seats::lines(int number) const { return region_.impl().lines(rank_, number); }

Seat Seats::take() {
  std::vector<std::shared_ptr<void>> memory;
  const std::lock_guard lock(mutex_);
  memory = free_left(/*look_at_processes=*/false);
  auto seat = std::find(taken_.begin(), taken_.end(), false);
  if (seat == taken_.end()) {
    memory = free_left(/*look_at_processes=*/true);
    seat = std::find(taken_.begin(), taken_.end(), false);
  }
  if (seat == taken_.end()) return {-1, 0};
  const auto number = static_cast<int>(seat - taken_.begin());
  *seat = true;
  clear(number);
  lines(number).use.store(++uses_[number], std::memory_order_relaxed);
  return {number, uses_[number]};
}

void Seats::give_back(Seat seat) {
  const std::lock_guard lock(mutex_);
  taken_[seat.lines] = false;
}

void Seats::abandon(Seat seat, const std::string& message) {
  lines(seat.lines).broken_message.set(message);
  lines(seat.lines).broken.store(1, std::memory_order_seq_cst);
}

void Seats::leave(Seat seat, std::vector<Member> others, std::shared_ptr<void> memory) {
  // Released: whoever sees it may overwrite what this rank has read.
  lines(seat.lines).left.store(seat.use, std::memory_order_release);
  std::vector<std::shared_ptr<void>> freed;
  const std::lock_guard lock(mutex_);
  left_.push_back({seat.lines, std::move(others), std::move(memory)});
  freed = free_left(/*look_at_processes=*/false);
}

bool Seats::has_left(const Member& member, bool look_at_process) const {
  const GroupLines& theirs = region_.impl().lines(member.rank, member.seat.lines);
  const uint32_t left = theirs.left.load(std::memory_order_acquire);
  if (static_cast<int32_t>(left - member.seat.use) >= 0) return true;
  return look_at_process && process_is_gone(region_, member.rank);
}

std::vector<std::shared_ptr<void>> Seats::free_left(bool look_at_processes) {
  std::vector<std::shared_ptr<void>> memory;
  std::erase_if(left_, [&](Left& group) {
    std::erase_if(group.others, [&](const Member& m) { return has_left(m, look_at_processes); });
    if (!group.others.empty()) return false;
    taken_[group.lines] = false;
    memory.push_back(std::move(group.memory));
    return true;
  });
  return memory;
}

void Seats::clear(int number) const {
  const auto restart = [](Signal& signal) {
    signal.value.store(0, std::memory_order_relaxed);
    signal.sleepers.store(0, std::memory_order_relaxed);  // of ranks that died asleep
  };
  GroupLines& mine = lines(number);
  for (Descriptor& slot : mine.slots) restart(slot.arrived);
  restart(mine.steps);
  mine.bell.rings.store(0, std::memory_order_relaxed);
  mine.bell.sleepers.store(0, std::memory_order_relaxed);
  mine.moving.store(0, std::memory_order_relaxed);
  mine.waiting_since.store(0, std::memory_order_relaxed);
  mine.broken.store(0, std::memory_order_relaxed);
  for (int peer = 0; peer < region_.ranks(); ++peer) {
    for (const Lane lane : {Lane::messages, Lane::plans}) {
      Channel& channel = region_.impl().channel(rank_, number, peer, lane);
      restart(channel.posted);
      restart(channel.taken);
    }
  }
}

}  // namespace lockstep::net
