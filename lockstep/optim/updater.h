/// What every optimizer is to the loop that calls it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::optim {

class Updater {
 public:
  virtual ~Updater() = default;

  /// One step; `grad_scale` multiplies every gradient first. Throws UsageError: `lr` negative or no
  /// number, `grad_scale` not finite; nothing was changed then.
  virtual void step(double lr, double grad_scale) = 0;

  /// Bytes of memory held between steps, masters and gradients of others not counted.
  virtual int64_t state_bytes() const = 0;

  /// Of a span, its moment `kind`, as many numbers as its elements; null: there are not so many
  /// kinds, or they are not in memory.
  virtual const float* moment([[maybe_unused]] int kind, [[maybe_unused]] size_t span) const {
    return nullptr;
  }

  /// The same, to bring back what was kept.
  float* moment_to_write(int kind, size_t span) {
    return const_cast<float*>(static_cast<const Updater*>(this)->moment(kind, span));
  }

  /// Elements [lo, hi) of a span's moment `kind`, wherever they are. Between steps.
  virtual void read_moment(int kind, size_t span, int64_t lo, int64_t hi, float* into) {
    std::copy_n(moment(kind, span) + lo, hi - lo, into);
  }
  virtual void write_moment(int kind, size_t span, int64_t lo, int64_t hi, const float* from) {
    std::copy_n(from, hi - lo, moment_to_write(kind, span) + lo);
  }

  int64_t steps_taken() const { return steps_taken_; }
  /// Goes on as after so many steps, whose moments were brought back.
  void set_steps_taken(int64_t steps) { steps_taken_ = steps; }

 protected:
  int64_t steps_taken_ = 0;
};

}  // namespace lockstep::optim
