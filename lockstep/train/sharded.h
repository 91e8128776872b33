/// The batches of any loader, dealt to the ranks in turn: rank r gets batches r, r + D, r + 2D, ...
///
///   for (auto& batch : lockstep::sharded(loader, world)) ...
///
/// Every rank runs through the whole loader, and all must see it in the same order: right for data
/// in memory and for loaders without a sampler of their own. Where reading costs time, give the
/// loader a DistributedSampler instead.
#pragma once

#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/comm/process_group.h"
#include "lockstep/input/sample_order.h"

namespace lockstep {

namespace detail {

template <class Loader>
auto& loader_of(Loader& loader) {
  if constexpr (
      requires { std::begin(loader); } || requires { loader.begin(); }) {
    return loader;
  } else {
    return *loader;  // std::unique_ptr, as torch::data::make_data_loader gives
  }
}

}  // namespace detail

/// One pass over a loader. Begin it once; each pass makes a new one.
template <class Loader>
class Sharded {
 public:
  using Inner = decltype(detail::loader_of(std::declval<Loader&>()).begin());
  using End = decltype(detail::loader_of(std::declval<Loader&>()).end());
  using Batch = std::remove_cv_t<std::remove_reference_t<decltype(*std::declval<Inner&>())>>;

  Sharded(Loader& loader, int rank, int ranks, input::Tail tail)
      : at_(detail::loader_of(loader).begin()),
        end_(detail::loader_of(loader).end()),
        rank_(rank),
        ranks_(ranks),
        tail_(tail) {}

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    explicit Iterator(Sharded* pass) : pass_(pass) { ++*this; }
    Batch& operator*() const { return *pass_->mine_; }
    Batch* operator->() const { return &*pass_->mine_; }
    Iterator& operator++() {
      if (!pass_->advance()) pass_ = nullptr;
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return pass_ == nullptr; }

   private:
    Sharded* pass_;
  };

  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() { return {}; }

 private:
  /// Reads one round of batches, one a rank, and keeps its own.
  bool advance() {
    mine_.reset();
    std::optional<Batch> first;  // of the round: what may pad it
    int read = 0;
    for (; read < ranks_ && at_ != end_; ++read, ++at_) {
      if (read == 0 && tail_ == input::Tail::pad) first.emplace(*at_);
      if (read == rank_) mine_.emplace(*at_);
    }
    if (read == 0) return false;
    if (read == ranks_ || tail_ == input::Tail::keep) return mine_.has_value();
    if (tail_ == input::Tail::drop) return false;
    if (!mine_) mine_ = std::move(first);
    return true;
  }

  Inner at_;
  End end_;
  int rank_;
  int ranks_;
  input::Tail tail_;
  std::optional<Batch> mine_;
};

/// `tail` says what happens to a last round with fewer batches than ranks: `drop` leaves it out,
/// `pad` gives its first batch to the ranks without one, `keep` ends those ranks early
/// (DistributedDataParallel::join).
template <class Loader>
Sharded<std::remove_reference_t<Loader>> sharded(Loader&& loader, const ProcessGroup& group,
                                                 input::Tail tail = input::Tail::drop) {
  static_assert(std::is_lvalue_reference_v<Loader>, "the loader must outlive the pass");
  return {loader, group.rank(), group.size(), tail};
}

template <class Loader>
auto sharded(Loader&& loader, const std::shared_ptr<ProcessGroup>& group,
             input::Tail tail = input::Tail::drop) {
  return sharded(std::forward<Loader>(loader), *group, tail);
}

}  // namespace lockstep
