/// The settings of a model in another program's JSON, read so that none is passed over: each key is
/// taken, known to change nothing, or refused with its value.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::checkpoints {

class ConfigReader {
 public:
  /// Throws StateError naming the file: not there, no JSON object.
  explicit ConfigReader(std::string path);
  /// An object inside another file; `place` is what messages call it.
  ConfigReader(std::string place, nlohmann::json object);

  const std::string& place() const { return place_; }
  /// Not there or null: the default. Throw StateError for another type, naming key and value.
  int64_t whole(const std::string& key, int64_t by_default);
  double real(const std::string& key, double by_default);
  bool flag(const std::string& key, bool by_default);
  std::string text(const std::string& key, const std::string& by_default);
  /// Null if it is not there.
  nlohmann::json any(const std::string& key);

  /// Throws StateError unless the key is absent, null or one of `wanted`; `why` says what Lockstep
  /// computes.
  void require(const std::string& key, const std::vector<nlohmann::json>& wanted,
               const std::string& why);
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  /// Keys that change nothing that is computed.
  void pass_over(const std::vector<std::string>& keys);
  /// Throws StateError for a key that nobody has asked about.
  void refuse_the_rest() const;

 private:
  std::string place_;
  nlohmann::json object_;
  std::set<std::string> seen_;
};

}  // namespace lockstep::checkpoints
