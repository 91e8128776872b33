/// Who holds how many bytes, and what for: one account a rank, a count for each kind.
///
/// Tensors are counted where LibTorch allocates them (counting_allocator.h): by the account and the
/// kind that the allocating thread has at that moment, and given back to the same ones whoever
/// frees them. Memory that LibTorch did not allocate is counted by whoever holds it (`Counted`).
///
/// An account may have a limit for all kinds together. What would pass it is refused before
/// anything is allocated, with an account of what was alive.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace lockstep::memory {

enum class Kind { parameters, gradients, optimizer, activations, gathered, communication, other };

inline constexpr int kKinds = 7;
inline constexpr std::array<const char*, kKinds> kKindNames = {
    "parameters", "gradients", "optimizer", "activations", "gathered", "communication", "other"};

/// Bytes of each kind, in the order of `Kind`.
using KindBytes = std::array<int64_t, kKinds>;

class Account {
 public:
  /// The account of threads that have opened none.
  static Account& of_process();
  /// One with nothing in it. Accounts live as long as the process, since blocks point at them;
  /// `close` lets a later `open` use it again, once all its blocks are gone.
  static Account& open();
  void close() { open_ = false; }

  /// From now on at most so many bytes are alive; 0: any number. Near the limit freed blocks are
  /// not kept for reuse. The error of what would pass it ends with what `advice` says then: which
  /// setting would fit. Ends with `close`.
  void set_limit(int64_t bytes, std::function<std::string()> advice = {});
  int64_t limit() const { return limit_; }

  /// `bytes` more, about to be allocated. Throws OutOfMemory: past the limit; nothing was counted.
  void take(Kind kind, int64_t bytes);
  /// `bytes` more, which are there already; a negative number: less.
  void add(Kind kind, int64_t bytes);

  KindBytes current() const;
  /// The most of each kind since the last reset; they need not have been alive together.
  KindBytes peak() const;
  int64_t current_bytes() const;
  /// The most of all kinds together.
  int64_t peak_bytes() const { return total_.peak; }
  void reset_peaks();

 private:
  struct Count {
    std::atomic<int64_t> current{0};
    std::atomic<int64_t> peak{0};
    void add(int64_t bytes);
    bool add_within(int64_t bytes, int64_t limit);
    void raise_peak(int64_t now);
  };

  [[noreturn]] void refuse(Kind kind, int64_t bytes);

  std::array<Count, kKinds> kinds_;
  Count total_;
  std::atomic<bool> open_{true};
  std::atomic<int64_t> limit_{0};
  std::mutex mutex_;  // guards `advice_`
  std::function<std::string()> advice_;
};

/// Whether `account` has a limit, and `cached` bytes kept for reuse beside it would pass that.
inline bool past_limit(const Account& account, int64_t cached) {
  return account.limit() > 0 && account.current_bytes() + cached > account.limit();
}

/// What this thread allocates is counted there.
Account& current_account();
Kind current_kind();

/// While it lives, this thread's tensors are counted in `account`.
class AccountScope {
 public:
  explicit AccountScope(Account& account);
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

 private:
  Account* before_;
};

/// While it lives, this thread's tensors are of this kind.
class KindScope {
 public:
  explicit KindScope(Kind kind);
  ~KindScope();
  KindScope(const KindScope&) = delete;
  KindScope& operator=(const KindScope&) = delete;

 private:
  Kind before_;
};

/// Bytes that LibTorch did not allocate: shared memory, an updater's moments.
class Counted {
 public:
  /// Made before they are allocated. Throws OutOfMemory: past the account's limit.
  Counted(Account& account, Kind kind, int64_t bytes);
  ~Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  Account& account_;
  Kind kind_;
  int64_t bytes_;
};

}  // namespace lockstep::memory
