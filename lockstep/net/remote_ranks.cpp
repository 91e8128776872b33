#include "lockstep/net/remote_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <type_traits>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/net/guard.h"
#include "lockstep/net/region.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::net {
namespace {

using Clock = std::chrono::steady_clock;

enum class Kind : uint8_t { hello, call, broken, abort, message };

/// Tells programs of another version, or of another byte order, apart.
constexpr uint32_t kProtocol = 0x6c730001;
constexpr std::chrono::microseconds kNap{50};
constexpr std::chrono::milliseconds kFlushPatience{1000};

template <class T>
void put(std::string& message, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& message, std::string_view text) {
  put(message, static_cast<uint32_t>(text.size()));
  message.append(text);
}

/// Takes values off the front of a message; one that is too short is of another protocol.
class Reader {
 public:
  explicit Reader(std::string_view message) : left_(message) {}

  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::string_view bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view get_text() { return take(get<uint32_t>()); }
  std::string_view rest() { return take(left_.size()); }

 private:
  std::string_view take(size_t bytes) {
    if (bytes > left_.size()) throw CommError("a rank of another host says what is no message.");
    const std::string_view front = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return front;
  }

  std::string_view left_;
};

/// A Descriptor without what only its own host can use.
struct Call {
  uint64_t counts_hash;
  int64_t count;
  int64_t out;  // of an all-to-all or a gather of text: no address
  int64_t step;
  uint32_t sequence;
  int32_t items;
  int32_t leaves;
  int16_t root;
  Operation operation;
  DType type;
  ReduceOp reduce_op;
  plan::Algorithm algorithm;
};

size_t list_bytes(Operation operation, int32_t items) {
  const size_t width = operation == Operation::all_to_all ? sizeof(int64_t) : sizeof(TermEntry);
  return static_cast<size_t>(items) * width;
}

std::string message_of(Kind kind, Seat seat = {}) {
  std::string message;
  put(message, kind);
  put(message, seat);
  return message;
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

RemoteRanks::RemoteRanks(std::shared_ptr<Region> region, const char* base,
                         std::unique_ptr<ControlChannel> channel, int rank,
                         const std::vector<int>& here)
    : region_(std::move(region)),
      base_(base),
      rank_(rank),
      host_name_(own_host_name()),
      here_(static_cast<size_t>(region_->ranks())),
      channel_(std::move(channel)),
      statuses_(static_cast<size_t>(region_->ranks())),
      first_of_host_(static_cast<size_t>(region_->ranks()), -1) {
  const int first = *std::min_element(here.begin(), here.end());
  for (const int r : here) {
    here_[static_cast<size_t>(r)] = true;
    first_of_host_[static_cast<size_t>(r)] = first;
  }
}

void RemoteRanks::meet(std::chrono::milliseconds timeout) {
  const int ranks = region_->ranks();
  std::string hello = message_of(Kind::hello);
  put(hello, kProtocol);
  put(hello, static_cast<int32_t>(first_of_host_[static_cast<size_t>(rank_)]));
  put_text(hello, host_name_);
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < ranks; ++r) {
      if (!is_here(r)) channel_->send(r, hello);
    }
  }
  const auto deadline = Clock::now() + timeout;
  const auto missing = [&] {
    const std::lock_guard lock(mutex_);
    std::vector<int> silent;
    for (int r = 0; r < ranks; ++r) {
      if (first_of_host_[static_cast<size_t>(r)] < 0) silent.push_back(r);
    }
    return silent;
  };
  while (!missing().empty()) {
    if (Clock::now() >= deadline) {
      throw CommError(base::str("[rank ", rank_, " of ", ranks, "] joining: no word from ",
                                ranks_text(missing()), " on other hosts for ",
                                timeout.count() / 1000, ".", timeout.count() % 1000 / 100, " s."));
    }
    take_in();
    std::this_thread::sleep_for(kNap);
  }
  for (int first = 0; first < ranks; ++first) {
    std::vector<int> host;
    for (int r = 0; r < ranks; ++r) {
      if (first_of_host_[static_cast<size_t>(r)] == first) host.push_back(r);
    }
    if (!host.empty()) hosts_.push_back(std::move(host));
  }
}

RemoteRanks::Remote& RemoteRanks::remote(int world_rank, Seat seat) {
  auto& entry = remotes_[{world_rank, seat.lines, seat.use}];
  if (!entry) entry = std::make_unique<Remote>();
  return *entry;
}

GroupLines& RemoteRanks::lines(int world_rank, Seat seat) {
  const std::lock_guard lock(mutex_);
  return remote(world_rank, seat).lines;
}

std::string RemoteRanks::last_seen(int world_rank, const std::string& who) {
  const std::lock_guard lock(mutex_);
  const Status& status = statuses_[static_cast<size_t>(world_rank)];
  std::string text = base::str(who, ", on host ", status.host);
  if (status.seat.lines < 0) return text + ", has made no call yet.";
  text += base::str(", came to its last call in ", status.phase);
  if (status.step >= 0) text += base::str(" of step ", status.step);
  const GroupLines& lines = remote(world_rank, status.seat).lines;
  return base::str(text, ": ", describe(lines.slots[status.sequence & 1]), ".");
}

void RemoteRanks::take_in() {
  const std::lock_guard lock(mutex_);
  int from = 0;
  std::string message;
  channel_->flush();
  while (channel_->receive(from, message)) take(from, message);
}

void RemoteRanks::take(int from, std::string_view message) {
  Reader reader(message);
  const auto kind = reader.get<Kind>();
  const auto seat = reader.get<Seat>();
  switch (kind) {
    case Kind::hello: {
      if (reader.get<uint32_t>() != kProtocol) {
        throw CommError(base::str("rank ", from, " runs another version of Lockstep, or on a ",
                                  "processor of another byte order.\n  Install one version on all "
                                  "hosts."));
      }
      first_of_host_[static_cast<size_t>(from)] = reader.get<int32_t>();
      statuses_[static_cast<size_t>(from)].host = reader.get_text();
      break;
    }
    case Kind::call:
      take_call(from, seat, reader.rest());
      break;
    case Kind::broken: {
      const auto number = reader.get<uint64_t>();
      if (reader.get<uint8_t>() != 0) somebody_died_.store(true, std::memory_order_release);
      GroupLines& lines = remote(from, seat).lines;
      lines.broken_message.set(reader.get_text());
      lines.broken.store(number, std::memory_order_seq_cst);
      break;
    }
    case Kind::abort: {
      if (reader.get<uint8_t>() != 0) somebody_died_.store(true, std::memory_order_release);
      // It comes to every rank of this host: nobody passes it on.
      region_->impl().header().abort_passed_on.store(1, std::memory_order_release);
      region_->abort(std::string(reader.get_text()));
      break;
    }
    case Kind::message: {
      Remote& there = remote(from, seat);
      UserMessage come;
      come.count = reader.get<int64_t>();
      come.tag = reader.get<int32_t>();
      come.type = reader.get<DType>();
      come.data = reader.rest();
      there.messages.push_back(std::move(come));
      there.messages_come.raise(there.messages_come.value.load(std::memory_order_relaxed) + 1);
      break;
    }
  }
}

int64_t RemoteRanks::address_of(const std::string& bytes) const {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes.data()) -
                              reinterpret_cast<uintptr_t>(base_));
}

void RemoteRanks::take_call(int from, Seat seat, std::string_view message) {
  Reader reader(message);
  const auto call = reader.get<Call>();
  Remote& there = remote(from, seat);
  const size_t slot = call.sequence & 1;
  Descriptor& d = there.lines.slots[slot];
  there.lists[slot] = reader.get_text();
  if (there.lists[slot].size() != list_bytes(call.operation, call.items)) {
    throw CommError(base::str("rank ", from, " announces a list of another length."));
  }
  there.texts[slot] = reader.get_text();
  d.operation = call.operation;
  d.type = call.type;
  d.reduce_op = call.reduce_op;
  d.inlined = 0;
  d.root = call.root;
  d.algorithm = call.algorithm;
  d.count = call.count;
  d.counts_hash = call.counts_hash;
  d.in = address_of(there.texts[slot]);
  d.out = call.out;
  d.list = address_of(there.lists[slot]);
  d.items = call.items;
  d.leaves = call.leaves;
  Status& status = statuses_[static_cast<size_t>(from)];
  status.step = call.step;
  status.phase = reader.get_text();
  status.seat = seat;
  status.sequence = call.sequence;
  d.arrived.raise(call.sequence);
}

void RemoteRanks::send_to(std::span<const int> members, const std::string& message) {
  for (const int member : members) {
    if (!is_here(member)) channel_->send(member, message);
  }
}

void RemoteRanks::tell_call(Seat seat, std::span<const int> members, const Descriptor& mine,
                            const void* list, uint32_t sequence, std::string_view text) {
  const RankControl& control = region_->impl().control(rank_);
  std::string message = message_of(Kind::call, seat);
  put(message, Call{.counts_hash = mine.counts_hash,
                    .count = mine.count,
                    .out = mine.out,
                    .step = control.step.load(std::memory_order_relaxed),
                    .sequence = sequence,
                    .items = mine.items,
                    .leaves = mine.leaves,
                    .root = mine.root,
                    .operation = mine.operation,
                    .type = mine.type,
                    .reduce_op = mine.reduce_op,
                    .algorithm = mine.algorithm});
  put_text(message, {static_cast<const char*>(list), list_bytes(mine.operation, mine.items)});
  put_text(message, text);
  put_text(message, control.phase.get());
  const std::lock_guard lock(mutex_);
  send_to(members, message);
}

void RemoteRanks::tell_broken(Seat seat, std::span<const int> members, uint64_t number, bool died,
                              const std::string& text) {
  std::string message = message_of(Kind::broken, seat);
  put(message, number);
  put(message, static_cast<uint8_t>(died));
  put_text(message, text);
  tell_in_need(members, message);
}

void RemoteRanks::pass_on_abort(bool died) {
  if (region_->impl().header().abort_passed_on.exchange(1) != 0) return;
  std::string message = message_of(Kind::abort);
  put(message, static_cast<uint8_t>(died));
  put_text(message, region_->abort_message());
  std::vector<int> everyone(here_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  tell_in_need(everyone, message);
}

void RemoteRanks::tell_in_need(std::span<const int> members, const std::string& message) {
  try {
    {
      const std::lock_guard lock(mutex_);
      send_to(members, message);
    }
    flush(kFlushPatience);
  } catch (const std::exception&) {
    // The engine is what failed, perhaps.
  }
}

void RemoteRanks::send(Seat seat, int to, DType type, int64_t count, int tag,
                       std::string_view data) {
  std::string message = message_of(Kind::message, seat);
  put(message, count);
  put(message, static_cast<int32_t>(tag));
  put(message, type);
  message.append(data);
  const std::lock_guard lock(mutex_);
  channel_->send(to, std::move(message));
}

Signal& RemoteRanks::messages_of(int from, Seat seat) {
  const std::lock_guard lock(mutex_);
  return remote(from, seat).messages_come;
}

RemoteRanks::UserMessage RemoteRanks::take_message(int from, Seat seat) {
  const std::lock_guard lock(mutex_);
  auto& messages = remote(from, seat).messages;
  LOCKSTEP_ASSERT(!messages.empty(), "the caller has seen it counted");
  UserMessage oldest = std::move(messages.front());
  messages.pop_front();
  return oldest;
}

void RemoteRanks::forget(int world_rank, Seat seat) {
  const std::lock_guard lock(mutex_);
  remotes_.erase({world_rank, seat.lines, seat.use});
}

bool RemoteRanks::flush(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (channel_->flush()) return true;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace lockstep::net
