/// The frame every call of a group runs in: announce, wait for the peers, compare, move, count.
///
///   1  prepare   fill the next descriptor slot: what the call is, where this rank's data are
///   2  meet      raise `arrived`; wait for each peer's; compare fingerprints. No data were used
///   yet 3  move      copy or add, reading peers' memory or their descriptors' payload 4  step if
///   peers' memory was read or written: wait until everybody is through
///
/// Calls whose data all travelled in descriptors end after 3: the alternating slots keep them safe.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/net/control.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/group.h"

namespace lockstep::net {

class MessageEngine;
class PlanRunner;
class RemoteRanks;
class Transport;

/// How a list of terms is added, worked out once per layout of terms.
struct SumRecipe {
  int leaves = 0;
  std::vector<std::vector<plan::LeafRange>> terms_by_rank;
  struct Source {
    int rank;
    int index;  // among the rank's terms
  };
  std::vector<Source> sources;  // in the order of the plan's terms
  std::vector<plan::AddStep> additions;
};

/// Memory up to this size that peers cannot reach is copied whole before the call is announced;
/// larger memory goes through the staging ring while the call runs.
inline constexpr int64_t kBounceBytes = 64 * KiB;

struct Group::Impl {
  Impl(Endpoint& endpoint, std::shared_ptr<Endpoint> keeps_endpoint, std::string name,
       const std::vector<Seats::Member>& everyone);
  ~Impl();

  int size() const { return static_cast<int>(members.size()); }

  // ---- the frame (group_core.cpp) ----

  /// Counts a call's time and marks the group broken if the call ends in an exception after its
  /// peers may rely on it.
  class Call {
   public:
    Call(Impl& group, Operation operation);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    LedgerEntry& entry() const { return entry_; }

   private:
    Impl& group_;
    LedgerEntry& entry_;
    int64_t& ticks_;
    int64_t start_;
    int exceptions_;
  };

  struct What {
    Operation operation;
    int64_t count = 0;
    DType type = DType::u8;
    ReduceOp reduce_op = ReduceOp::sum;
    int root = 0;
    plan::Algorithm algorithm = plan::Algorithm::direct;
    uint64_t counts_hash = 0;
    int leaves = 0;
  };

  const Ledger& read_ledger();

  /// By the table; `bytes`: of a rank's tensor.
  plan::Algorithm algorithm_for(plan::Collective operation, int64_t bytes) const;
  /// Whether that is a plan over messages, instead of one pass over peers' memory.
  bool is_plan(plan::Algorithm algorithm) const {
    const bool messages_only =
        engine != nullptr || network != nullptr;  // as where hosts are spanned
    return algorithm != plan::Algorithm::direct || (messages_only && size() > 1);
  }
  void take_table(plan::AlgorithmTable given);
  /// The group's ranks by host.
  std::vector<std::vector<int>> hosts() const;

  /// The slot of the next collective, filled in but not announced.
  Descriptor& prepare(const What& what);
  /// Names `data` as this rank's contribution: in the payload if it fits, else by address; a short
  /// piece of memory that peers cannot reach is copied to where they can.
  void offer(Descriptor& mine, const void* data, int64_t bytes);
  /// Heap memory that stays untouched until the collective after the next one.
  char* bounce(int64_t bytes) { return bounces[sequence & 1].at_least(*this, bytes); }
  /// Room for a list of `bytes` that peers read through `mine.list`.
  void* list_room(Descriptor& mine, int64_t bytes);
  /// Announces the call, waits for every peer, compares. `text`: of a gather of text, for members
  /// on other hosts. Throws CommError.
  void meet(const Descriptor& mine, std::string_view text = {});
  /// The same for a call whose data are all in the root's descriptor: only the root is waited for,
  /// and it for nobody. The others are met before the next call overwrites what they may still
  /// read.
  void meet_root(const Descriptor& mine);
  void meet_peers();
  void meet_peer(int peer);
  /// The descriptor with which group rank `peer` came to the current collective.
  const Descriptor& came_with(int peer) const { return lines[peer]->slots[sequence & 1]; }
  /// What `peer` offered; null if it can be had only through the peer's staging ring.
  const char* offered_by(int peer) const;
  bool everyone_inlined() const;
  bool everyone_reachable() const;
  /// To be called before peers' memory is used: one that came and has given up since (it timed out)
  /// no longer keeps its memory for us.
  void expect_peers_memory() {
    say_moving();
    throw_if_broken(collectives);
  }
  /// Where ranks are threads, a rank that leaves a call by an exception may free what it lent: it
  /// first waits until no peer is moving, which is as long as a copy takes. (Between processes only
  /// the heap is lent, and stays mapped.) Throws if the job was aborted before.
  void say_moving();
  void say_moved() {
    if (direct_memory) lines[rank]->moving.store(0, std::memory_order_seq_cst);
  }
  void wait_for_moving_peers();
  /// Waits until every rank has called it, or say_done, as often as this one.
  void step();
  /// The part of step that others wait for: this rank is through with its peers' memory.
  void say_done();

  int64_t address_of(const void* data, int64_t bytes) const;
  char* at(int64_t address) const;

  void pass(Point point) const {
    if (at_point != nullptr) (*at_point)(point);
  }

  // ---- waiting, and when something goes wrong (group_watch.cpp) ----

  /// What this rank does at the moment, for messages.
  std::string here() const;
  /// Whether a member shares no region with this rank.
  bool is_remote(int peer) const;
  [[noreturn]] void fail(const std::string& what, bool died = false);
  void mark_broken(const std::string& message, bool died = false);
  /// Whether the job was aborted; then this host's ranks and all others know.
  bool is_aborted() const;
  /// Whether the process of a member is gone without a word.
  bool somebody_here_died() const;
  void throw_if_finished();
  /// What another rank has said, as an error: RankDied if a process of the group is gone without a
  /// word, so that all survivors of a death end alike; else CommError.
  [[noreturn]] void throw_finished();
  /// If a peer has found that the group ends with a collective up to that number.
  void throw_if_broken(uint64_t up_to);
  /// What a wait is for, once it is no longer short.
  struct Wait {
    int peer;                // whose word is missing at the moment
    const char* their_word;  // what peers have done who are not missing: "arrived"
    std::function<bool(int peer)> has_come;
  };
  Wait wait_on(int peer, const Signal& signal, uint32_t target) const;
  /// A call may wait several times: what others read of this rank is whom it waits for now.
  void say_waited() { lines[rank]->waiting_for.store(-1, std::memory_order_relaxed); }
  /// Throws when there is no more sense in waiting.
  void check(const Wait& wait);
  /// Throws if the peer has left the job, or the process of any member is gone.
  void look_at_processes(const Wait& wait);
  std::vector<int> missing_in(const Wait& wait) const;
  void time_out(const Wait& wait);
  void wait_for(int peer, Signal& signal, uint32_t target);
  /// The same for a signal that a message of another host raises.
  void wait_for_word(int peer, const Signal& signal, uint32_t target);
  /// Until all that was started is complete.
  void wait_for(Transport& transport);
  void record(Operation operation, int64_t count, DType type, ReduceOp reduce_op, uint64_t number);

  // ---- sums (reductions.cpp); leaves 0: leaf r is rank r's one term ----

  void reduce_to_all(std::span<const Term> terms, int leaves, void* result, int64_t count,
                     DType type, ReduceOp op);
  void reduce_to_owners(std::span<const Term> terms, int leaves, void* out,
                        std::span<const int64_t> counts, DType type, ReduceOp op);
  /// Names the terms, each of `bytes`; returns where copies of them lie if they were copied.
  char* announce_terms(Descriptor& mine, std::span<const Term> terms, int leaves, int64_t bytes);
  /// The same without addresses: which leaves they are.
  void announce_leaves(Descriptor& mine, std::span<const Term> terms, int leaves);
  const SumRecipe& recipe_for_call(int leaves);
  /// Where a term of the current call is; null if it is out of reach.
  const char* term_of(const SumRecipe::Source& source, std::span<const Term> mine, int leaves,
                      int64_t bytes) const;
  /// Points `term_pointers` at every term of the sum; how many are in peers' memory.
  int64_t find_terms(const SumRecipe& recipe, std::span<const Term> mine, int leaves,
                     int64_t bytes);

  // ---- plans (plan_runner.cpp) ----

  /// Has the engine of messages, if there is one, connect the members. All call it together, before
  /// their first call.
  void connect();
  PlanRunner& runner();

  // ---- moves (collectives.cpp) ----

  /// Names this rank's counts of an all-to-all: one number if they are all the same, else a list.
  void announce_counts(Descriptor& mine, std::span<const int64_t> sends,
                       std::span<const int64_t> receives);
  /// What rank `from` announced to send to `to`, and what `to` announced to expect of `from`.
  int64_t sent(int from, int to) const;
  int64_t wanted(int to, int from) const;
  /// Every rank looks at every pair, its own first: all must know before one uses another's memory.
  void compare_counts(DType type);

  std::vector<std::string> gather_text(Operation operation, const std::string& mine, uint64_t hash);

  // ---- messages (point_to_point.cpp) ----

  void send(const void* data, int64_t count, DType type, int to, int tag);
  void receive(void* data, int64_t count, DType type, int from, int tag);
  void receive_across(void* data, int64_t count, DType type, int from, int tag, LedgerEntry& entry);

  /// From one member to another: the first one writes it.
  Channel& channel(int from, int to, Lane lane) const {
    return region.channel(members[from], seats[from].lines, to, lane);
  }

  // ---- the end (group.cpp) ----

  /// Leaves the seat, and leaves to the endpoint what others may still read.
  static void leave(std::unique_ptr<Impl> impl);

  /// Heap memory that grows when asked to.
  struct Scratch {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
    char* at_least(const Impl& group, int64_t wanted);
  };

  // ---- what the group is ----

  Endpoint& endpoint;
  std::shared_ptr<Endpoint> keeps_endpoint;  // null for the world, which the endpoint owns
  Region::Impl& region;
  RankControl& control;  // this rank's
  const bool direct_memory;
  RemoteRanks* const remote;                // of the job's other hosts; null: there are none
  const bool spans_hosts;                   // not all members are on one host
  MessageEngine* const engine;              // null: the region carries tensors
  const plan::NetworkModel* const network;  // null: none is modelled
  const std::string name;
  std::vector<int> members;  // ranks of the job
  std::vector<Seat> seats;   // of the members
  int rank = 0;
  std::vector<GroupLines*> lines;                    // by group rank
  const std::function<void(Point)>* const at_point;  // null: nobody looks
  const CallChecks checks;
  Patience patience;
  std::chrono::milliseconds timeout;
  plan::AlgorithmTable given_algorithms;     // as somebody set them
  plan::AlgorithmTable algorithms;           // with what the group's hosts suggest
  Ledger ledger;                             // its seconds are brought up to date when read
  std::array<int64_t, kOperations> ticks{};  // in calls, by operation

  // ---- the state of calls; one thread at a time ----

  uint32_t sequence = 0;     // collectives so far
  uint64_t collectives = 0;  // the same without wrapping: the number in messages
  uint32_t steps = 0;
  std::string finished;  // why the group can do no more; empty while it can
  std::string current;   // a message under way; empty in a collective
  std::chrono::steady_clock::time_point deadline;
  std::chrono::steady_clock::time_point next_look;
  bool waiting = false;             // deadline is set for the current call
  bool others_are_to_meet = false;  // in the last call (meet_root)
  int waited_for = 0;               // while waiting: who is missing, and waits for nobody itself
  std::array<Scratch, 2> lists;     // lists too long for a descriptor, by slot
  std::array<Scratch, 2> bounces;   // copies of data that peers cannot reach, by slot
  Scratch staging;
  std::unique_ptr<PlanRunner> plans;       // over the region: made when first used
  SumRecipe by_rank;                       // leaf r on rank r
  std::vector<SumRecipe> recipes;          // of the last layouts of terms
  size_t next_recipe = 0;                  // to be replaced next
  std::vector<const void*> term_pointers;  // of the pass under way
  std::vector<void*> result_pointers;

  struct Outbox {
    uint32_t posted = 0;
    std::array<std::shared_ptr<void>, kParcels> copies;
  };
  std::vector<Outbox> outboxes;  // by group rank
  std::vector<uint32_t> taken;   // parcels taken from each rank
  uint64_t messages = 0;
};

}  // namespace lockstep::net
