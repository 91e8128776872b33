#include "lockstep/checkpoint/config_reader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shallow_json.h"
#include "lockstep/base/str.h"
#include "lockstep/files/mapped_file.h"

namespace lockstep::checkpoints {

ConfigReader::ConfigReader(std::string path) : place_(std::move(path)) {
  try {
    const files::MappedFile file(place_);
    object_ = nlohmann::json::parse(base::shallow_json(file.text()));
  } catch (const std::system_error& error) {
    throw StateError(base::str("cannot read ", place_, ": ", error.code().message(), "."));
  } catch (const nlohmann::json::exception& error) {
    throw StateError(base::str(place_, ": it is no JSON: ", error.what()));
  }
  if (!object_.is_object()) throw StateError(base::str(place_, ": it is no JSON object."));
}

ConfigReader::ConfigReader(std::string place, nlohmann::json object)
    : place_(std::move(place)), object_(std::move(object)) {
  if (!object_.is_object()) throw StateError(base::str(place_, " is no JSON object."));
}

nlohmann::json ConfigReader::any(const std::string& key) {
  seen_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nlohmann::json() : *found;
}

int64_t ConfigReader::whole(const std::string& key, int64_t by_default) {
  const nlohmann::json value = any(key);
  if (value.is_null()) return by_default;
  if (!value.is_number_integer()) refuse(key, "it should be a whole number");
  return value.get<int64_t>();
}

double ConfigReader::real(const std::string& key, double by_default) {
  const nlohmann::json value = any(key);
  if (value.is_null()) return by_default;
  if (!value.is_number()) refuse(key, "it should be a number");
  return value.get<double>();
}

bool ConfigReader::flag(const std::string& key, bool by_default) {
  const nlohmann::json value = any(key);
  if (value.is_null()) return by_default;
  if (!value.is_boolean()) refuse(key, "it should be true or false");
  return value.get<bool>();
}

std::string ConfigReader::text(const std::string& key, const std::string& by_default) {
  const nlohmann::json value = any(key);
  if (value.is_null()) return by_default;
  if (!value.is_string()) refuse(key, "it should be a text");
  return value.get<std::string>();
}

void ConfigReader::require(const std::string& key, const std::vector<nlohmann::json>& wanted,
                           const std::string& why) {
  const nlohmann::json value = any(key);
  if (value.is_null() || std::find(wanted.begin(), wanted.end(), value) != wanted.end()) return;
  refuse(key, why);
}

void ConfigReader::refuse(const std::string& key, const std::string& why) const {
  throw StateError(
      base::str(place_, ": \"", key, "\" is ", object_.at(key).dump(), ": ", why, "."));
}

void ConfigReader::pass_over(const std::vector<std::string>& keys) {
  seen_.insert(keys.begin(), keys.end());
}

void ConfigReader::refuse_the_rest() const {
  for (const auto& [key, value] : object_.items()) {
    if (seen_.contains(key) || value.is_null()) continue;
    throw StateError(base::str(place_, ": \"", key, "\" is ", value.dump(),
                               ", which Lockstep does not know.\n  If it changes nothing that the "
                               "model computes, take it out of a copy of the file."));
  }
}

}  // namespace lockstep::checkpoints
