#include "lockstep/memory/account.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::memory {
namespace {

thread_local Account* account_here = nullptr;
thread_local Kind kind_here = Kind::other;

}  // namespace

void Account::Count::add(int64_t bytes) {
  const int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
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
    account->reset_peaks();
    return *account;
  }
  return *accounts->emplace_back(std::make_unique<Account>());
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
  account_.add(kind_, bytes_);
}

Counted::~Counted() { account_.add(kind_, -bytes_); }

}  // namespace lockstep::memory
