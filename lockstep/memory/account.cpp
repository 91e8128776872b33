#include "lockstep/memory/account.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/memory/counting_allocator.h"

namespace lockstep::memory {
namespace {

thread_local Account* account_here = nullptr;
thread_local Kind kind_here = Kind::other;

}  // namespace

void Account::Count::raise_peak(int64_t now) {
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

void Account::Count::add(int64_t bytes) {
  raise_peak(current.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

bool Account::Count::add_within(int64_t bytes, int64_t limit) {
  int64_t before = current.load(std::memory_order_relaxed);
  do {
    if (bytes > limit - before) return false;
  } while (!current.compare_exchange_weak(before, before + bytes));
  raise_peak(before + bytes);
  return true;
}

Account& Account::of_process() {
  // Never destroyed: static tensors may be freed after it would be.
  static Account* const account = new Account;
  return *account;
}

Account& Account::open() {
  static std::mutex* const mutex = new std::mutex;  // guards `accounts`
  static auto* const accounts = new std::vector<std::unique_ptr<Account>>;
  const std::lock_guard lock(*mutex);
  for (const auto& account : *accounts) {
    if (account->open_ || account->current() != KindBytes{}) continue;
    account->open_ = true;
    account->set_limit(0);
    account->reset_peaks();
    return *account;
  }
  return *accounts->emplace_back(std::make_unique<Account>());
}

void Account::set_limit(int64_t bytes, std::function<std::string()> advice) {
  LOCKSTEP_ASSERT(bytes >= 0, "a limit is a number of bytes");
  const std::lock_guard lock(mutex_);
  advice_ = std::move(advice);
  limit_ = bytes;
}

void Account::take(Kind kind, int64_t bytes) {
  const int64_t limit = limit_;
  if (limit == 0) {
    add(kind, bytes);
    return;
  }
  if (!total_.add_within(bytes, limit)) refuse(kind, bytes);
  kinds_[static_cast<size_t>(kind)].add(bytes);
}

void Account::refuse(Kind kind, int64_t bytes) {
  const KindBytes alive = current();
  std::vector<size_t> order;
  for (size_t i = 0; i < alive.size(); ++i) {
    if (alive[i] > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return alive[a] > alive[b]; });
  std::vector<std::string> parts;
  for (const size_t i : order) {
    parts.push_back(base::str(base::bytes_text(alive[i]), " of ", kKindNames[i]));
  }
  std::function<std::string()> advice;
  {
    const std::lock_guard lock(mutex_);
    advice = advice_;
  }
  throw OutOfMemory(base::str("no memory for ", base::bytes_text(bytes), " of ",
                              kKindNames[static_cast<size_t>(kind)], ": memory.limit_mb allows ",
                              base::bytes_text(limit_), " and ", base::bytes_text(current_bytes()),
                              " are alive", parts.empty() ? "" : ": ", base::joined(parts), ".",
                              advice ? "\n  " + advice() : ""));
}

void Account::add(Kind kind, int64_t bytes) {
  kinds_[static_cast<size_t>(kind)].add(bytes);
  total_.add(bytes);
}

KindBytes Account::current() const {
  KindBytes bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = kinds_[i].current;
  return bytes;
}

KindBytes Account::peak() const {
  KindBytes bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = kinds_[i].peak;
  return bytes;
}

int64_t Account::current_bytes() const { return total_.current; }

void Account::reset_peaks() {
  for (Count& count : kinds_) count.peak = count.current.load();
  total_.peak = total_.current.load();
}

Account& current_account() {
  return account_here != nullptr ? *account_here : Account::of_process();
}

Kind current_kind() { return kind_here; }

AccountScope::AccountScope(Account& account) : before_(std::exchange(account_here, &account)) {}
AccountScope::~AccountScope() { account_here = before_; }

KindScope::KindScope(Kind kind) : before_(std::exchange(kind_here, kind)) {}
KindScope::~KindScope() { kind_here = before_; }

Counted::Counted(Account& account, Kind kind, int64_t bytes)
    : account_(account), kind_(kind), bytes_(bytes) {
  account_.take(kind_, bytes_);
  if (past_limit(account_, tensor_memory().cached_bytes)) release_cached_blocks();
}

Counted::~Counted() { account_.add(kind_, -bytes_); }

}  // namespace lockstep::memory
