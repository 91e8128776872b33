/// Random draws of a piece of code, so that the same code can draw the same again.
///
/// LibTorch's operators draw from one generator of the process. While a Drawing lives, those of its
/// thread draw from a copy instead: taken when the first of them draws, and put back at the end, as
/// if they had drawn from the original. A second run draws from the copy's start and puts nothing
/// back, so the generator of the process is never turned back under another thread's hands.
///
/// Holds   a copy of the generator (5 KB), only if something was drawn
/// Order   the draws are those of the code without it. Where another thread drew from the process's
///         generator meanwhile, that one's state stays, and some numbers are drawn in both threads
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep::torch_inside {

class Drawing {
 public:
  /// The first run.
  Drawing();
  /// A run that draws what one whose `start()` this is drew.
  explicit Drawing(const at::Generator& start);
  ~Drawing();
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

  /// The generator before the first draw; undefined if nothing was drawn.
  const at::Generator& start() const { return start_; }

  /// What this thread draws from now: a copy, made at the first call.
  const at::Generator& generator();

 private:
  void put_back() const;

  Drawing* outer_;
  bool again_;
  at::Generator start_;
  at::Generator copy_;
  c10::impl::IncludeDispatchKeyGuard operators_;
};

}  // namespace lockstep::torch_inside
