/// One rank of a program that takes part in collectives.py: waits for orders, measures, answers.
///
/// All programs of a comparison are alive at once and take turns of some milliseconds, so that a
/// disturbance of the machine meets them alike; whoever is not at turn sleeps in read(). An order
/// is a line `OPERATION BYTES CALLS BATCH` that every rank finds in its own pipe, FOLDER/RANK.in;
/// rank 0 answers `MEDIAN_US WRONG` on FOLDER/out.
///
/// A rank writes its tensor anew before each call (a backward pass does), then a barrier, then the
/// call; the time of a call is that of its slowest rank. With BATCH > 1 so many calls follow each
/// other under one clock, and the time is a call's share: for calls shorter than reading a clock.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace lockstep::bench {

enum class Operation { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast };

inline Operation operation_of(const std::string& name) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all"};
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  return static_cast<Operation>(found - std::begin(kNames));  // not found: the last, broadcast
}

/// What a program brings: its library's collectives on float32.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Memory of the kind that the library is measured with; never given back.
  virtual float* allocate(int64_t count) = 0;
  virtual void barrier() = 0;
  virtual void max(std::vector<double>& values) = 0;  // element by element over the ranks
  /// `count` elements a rank for the first and the last, count / size() a rank and slice for the
  /// others. Throws std::exception if the library cannot.
  virtual void all_reduce(float* x, int64_t count) = 0;
  virtual void reduce_scatter(const float* in, float* out, int64_t slice) = 0;
  virtual void all_gather(const float* in, float* out, int64_t slice) = 0;
  virtual void all_to_all(const float* in, float* out, int64_t slice) = 0;
  virtual void broadcast(float* x, int64_t count) = 0;  // from rank 0
};

/// The calling thread stays on the rank's core, if there is one for each rank.
inline void bind_to_core(int rank, int ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || rank-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

class Turns {
 public:
  Turns(Peer& peer, const std::string& folder, int64_t max_bytes)
      : peer_(peer),
        folder_(folder),
        a_(peer.allocate(max_bytes / 4)),
        b_(peer.allocate(max_bytes / 4)) {
    std::fill_n(b_, max_bytes / 4, 0.0f);
  }

  /// Until the pipe is closed.
  void serve() {
    std::ifstream orders(folder_ + "/" + std::to_string(peer_.rank()) + ".in");
    std::ofstream answers;
    if (peer_.rank() == 0) answers.open(folder_ + "/out");
    std::string name;
    int64_t bytes = 0;
    int calls = 0;
    int batch = 0;
    while (orders >> name >> bytes >> calls >> batch) {
      std::string answer;
      try {
        answer = measure(operation_of(name), bytes / 4, calls, batch);
      } catch (const std::exception& error) {
        answer = std::string("unsupported: ") + error.what();
        answer = answer.substr(0, answer.find('\n'));
      }
      if (peer_.rank() == 0) answers << answer << std::endl;
    }
  }

 private:
  /// Small whole numbers: sums are exact, and each call has others.
  static float value(int rank, int turn, int64_t i) {
    return static_cast<float>((static_cast<int>(i) + 5 * rank + turn) & 127);
  }

  std::string measure(Operation operation, int64_t count, int calls, int batch) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    for (int call = -1; call < calls; ++call) {  // the first warms up
      if (batch == 1) write(count, ++turn_);
      peer_.barrier();
      const auto start = Clock::now();
      for (int i = 0; i < batch; ++i) {
        if (batch > 1) write(count, ++turn_);
        run(operation, count);
      }
      const std::chrono::duration<double> taken = Clock::now() - start;
      if (call >= 0) seconds.push_back(taken.count() / batch);
    }
    std::vector<double> wrong = {wrong_values(operation, count)};
    peer_.max(seconds);
    peer_.max(wrong);
    std::sort(seconds.begin(), seconds.end());
    char text[64];
    std::snprintf(text, sizeof text, "%.4f %.0f", seconds[seconds.size() / 2] * 1e6, wrong[0]);
    return text;
  }

  void write(int64_t count, int turn) {
    for (int64_t i = 0; i < count; ++i) a_[i] = value(peer_.rank(), turn, i);
  }

  void run(Operation operation, int64_t count) {
    const int64_t slice = count / peer_.size();
    switch (operation) {
      case Operation::all_reduce:
        return peer_.all_reduce(a_, count);
      case Operation::reduce_scatter:
        return peer_.reduce_scatter(a_, b_, slice);
      case Operation::all_gather:
        return peer_.all_gather(a_, b_, slice);
      case Operation::all_to_all:
        return peer_.all_to_all(a_, b_, slice);
      case Operation::broadcast:
        return peer_.broadcast(a_, count);
    }
  }

  /// Elements of the last result that are not what the operation gives.
  double wrong_values(Operation operation, int64_t count) const {
    const int ranks = peer_.size();
    const int64_t slice = count / ranks;
    const int64_t own = peer_.rank() * slice;
    const auto sum = [&](int64_t i) {
      float total = 0;
      for (int r = 0; r < ranks; ++r) total += value(r, turn_, i);
      return total;
    };
    int64_t wrong = 0;
    if (operation == Operation::all_reduce) {
      for (int64_t i = 0; i < count; ++i) wrong += a_[i] != sum(i);
    } else if (operation == Operation::reduce_scatter) {
      for (int64_t i = 0; i < slice; ++i) wrong += b_[i] != sum(own + i);
    } else if (operation == Operation::broadcast) {
      for (int64_t i = 0; i < count; ++i) wrong += a_[i] != value(0, turn_, i);
    } else {
      const int64_t first = operation == Operation::all_to_all ? own : 0;
      for (int64_t i = 0; i < slice * ranks; ++i) {
        wrong += b_[i] != value(static_cast<int>(i / slice), turn_, first + i % slice);
      }
    }
    return static_cast<double>(wrong);
  }

  Peer& peer_;
  const std::string folder_;
  float* const a_;
  float* const b_;
  int turn_ = 0;
};

/// Over other users of the machine, whose jobs the kernel weighs by session. Every rank does it
/// itself: a launcher may put each rank into a session of its own (MPICH's does), where the weight
/// of collectives.py does not reach.
inline void take_priority() {
  if (std::getenv("LOCKSTEP_BENCH_PRIORITY") == nullptr) return;
  setpriority(PRIO_PROCESS, 0, -20);
  std::ofstream("/proc/self/autogroup") << "-20";
}

/// The main of a rank, once its library is up.
inline void serve(Peer& peer, const std::string& folder, int64_t max_bytes) {
  take_priority();
  bind_to_core(peer.rank(), peer.size());
  Turns(peer, folder, max_bytes).serve();
}

/// 2 MiB aligned, as a library for tensors would take large ones.
inline float* ordinary_memory(int64_t count) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = (static_cast<size_t>(count) * 4 + kHugePage) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, bytes);
  if (memory == nullptr) std::abort();
  return static_cast<float*>(memory);
}

}  // namespace lockstep::bench
