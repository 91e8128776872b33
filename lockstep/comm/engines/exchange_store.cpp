#include "lockstep/comm/engines/exchange_store.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

// What a rank says in a round: nothing, or "KEY VALUE". c10d's keys have no spaces.

void ExchangeStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  round(base::str(key, ' ', std::string(value.begin(), value.end())));
}

void ExchangeStore::round(const std::string& mine) {
  for (const std::string& said : exchange_(mine)) {
    const size_t space = said.find(' ');
    if (space == std::string::npos) continue;
    values_[said.substr(0, space)].assign(said.begin() + static_cast<ptrdiff_t>(space) + 1,
                                          said.end());
  }
}

void ExchangeStore::wait(const std::vector<std::string>& keys) {
  if (!check(keys)) round("");
  for (const std::string& key : keys) {
    if (!values_.contains(key)) {
      throw CommError(base::str("no rank has set \"", key,
                                "\" while the group was connected: do all ranks run one version?"));
    }
  }
}

std::vector<uint8_t> ExchangeStore::get(const std::string& key) {
  wait({key});
  return values_.at(key);
}

bool ExchangeStore::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return values_.contains(key); });
}

int64_t ExchangeStore::add(const std::string& key, int64_t) {
  throw UsageError(base::str("an exchange of keys cannot count: add(\"", key, "\")"));
}

bool ExchangeStore::deleteKey(const std::string& key) {
  throw UsageError(base::str("an exchange of keys forgets nothing: deleteKey(\"", key, "\")"));
}

}  // namespace lockstep
