/// In which order a computation comes to its units, learned from the pass before: what to gather
/// ahead of its use where no plan says so.
///
///   first forward   0 1 2 3      learned as it goes: nothing is known ahead
///   backward        3 2 1 0      the same
///   next forward    0 1 ...      it follows what was learned: 2 3 are ahead
///                   0 2 ...      it does not: nothing is ahead, and this pass is learned instead
///
/// A forward ends with the backward that follows it. Where none follows (evaluation, or several
/// forwards before one backward) it ends when its first unit comes again after all had their turn.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace lockstep::detail {

class UnitOrder {
 public:
  enum class Pass { forward, backward };

  explicit UnitOrder(int units) : units_(static_cast<size_t>(units)) {}

  /// A pass begins; what the one before came to is learned.
  void begin(Pass pass);
  /// The computation has come to a unit, from another one.
  void come_to(int unit);
  /// At most `depth` different units that are next, as far as this pass follows what was learned.
  std::vector<int> ahead(int depth) const;

  /// Whether the pass at hand goes as the last one of its kind did, so far.
  bool follows() const { return follows_; }

 private:
  std::vector<int>& learned() { return learned_[static_cast<size_t>(pass_)]; }
  const std::vector<int>& learned() const { return learned_[static_cast<size_t>(pass_)]; }
  void learn();
  bool starts_again(int unit) const;

  size_t units_;
  Pass pass_ = Pass::forward;
  std::array<std::vector<int>, 2> learned_;  // by pass
  std::vector<int> trace_;                   // of the pass at hand
  bool follows_ = false;
};

}  // namespace lockstep::detail
