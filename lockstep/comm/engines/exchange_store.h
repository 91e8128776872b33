/// A c10d store of what the members of a group tell each other while they connect. It has no
/// server, port or file.
///
/// Each key that a rank sets, and each that it looks up in vain, is a round: all members exchange
/// what they have set since the last. So process groups come up: every rank sets its address and
/// then reads the others'.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/net/transport.h"

namespace lockstep {

class ExchangeStore final : public c10d::Store {
 public:
  /// `exchange` is called by those of the store's methods that are rounds, and what it throws
  /// leaves them.
  explicit ExchangeStore(net::Exchange exchange) : exchange_(std::move(exchange)) {}

  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  /// Throws CommError if the round has not brought the key.
  std::vector<uint8_t> get(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  /// The exchange has a timeout of its own.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }
  int64_t getNumKeys() override { return static_cast<int64_t>(values_.size()); }

  /// Not to be had from an exchange: they throw UsageError.
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;

 private:
  void round(const std::string& mine);

  const net::Exchange exchange_;
  std::map<std::string, std::vector<uint8_t>> values_;
};

}  // namespace lockstep
