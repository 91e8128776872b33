#include "lockstep/input/data_cursor.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"

namespace lockstep::input {
namespace {

constexpr int64_t kStretches = 64;
constexpr int64_t kStretchTokens = 1024;

std::string digest_of(const TokenSource& source) {
  uint64_t hash = base::mix64(static_cast<uint64_t>(source.size()));
  std::vector<int64_t> ids;
  for (int64_t stretch = 0; stretch < kStretches; ++stretch) {
    const int64_t longest = std::min(kStretchTokens, source.size());
    const auto first = static_cast<int64_t>(static_cast<__int128>(source.size() - longest) *
                                            stretch / (kStretches - 1));
    ids.resize(static_cast<size_t>(longest));
    source.read(first, longest, ids.data());
    for (const int64_t id : ids) hash = base::mix64(hash ^ static_cast<uint64_t>(id));
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string text_of(const SourceIdentity& source) {
  return base::str(source.path, " (", source.tokens, " tokens, weight ", source.weight, ", digest ",
                   source.digest, ")");
}

}  // namespace

DataCursor data_cursor(const TrainingData& data, int64_t samples) {
  const Sampler& sampler = data.sources().front().sampler;
  DataCursor cursor{.samples = samples,
                    .seed = sampler.seed,
                    .context = sampler.context,
                    .shuffle = sampler.shuffle,
                    .sources = {}};
  for (const auto& source : data.sources()) {
    cursor.sources.push_back({.path = source.tokens->path(),
                              .weight = source.weight,
                              .tokens = source.tokens->size(),
                              .digest = digest_of(*source.tokens)});
  }
  return cursor;
}

nlohmann::json to_json(const DataCursor& cursor) {
  nlohmann::json sources = nlohmann::json::array();
  for (const auto& source : cursor.sources) {
    sources.push_back({{"path", source.path},
                       {"weight", source.weight},
                       {"tokens", source.tokens},
                       {"digest", source.digest}});
  }
  return {{"samples", cursor.samples},
          {"seed", cursor.seed},
          {"context", cursor.context},
          {"shuffle", cursor.shuffle},
          {"sources", sources}};
}

DataCursor data_cursor_from_json(const nlohmann::json& json) {
  DataCursor cursor;
  try {
    cursor.samples = json.at("samples").get<int64_t>();
    cursor.seed = json.at("seed").get<uint64_t>();
    cursor.context = json.at("context").get<int64_t>();
    cursor.shuffle = json.at("shuffle").get<bool>();
    for (const auto& source : json.at("sources")) {
      cursor.sources.push_back({.path = source.at("path").get<std::string>(),
                                .weight = source.at("weight").get<int64_t>(),
                                .tokens = source.at("tokens").get<int64_t>(),
                                .digest = source.at("digest").get<std::string>()});
    }
  } catch (const nlohmann::json::exception& error) {
    throw StateError(base::str("the place in the data cannot be read: ", error.what(), "."));
  }
  if (cursor.samples < 0 || cursor.context < 1 || cursor.sources.empty()) {
    throw StateError(base::str("the place in the data is impossible: ", cursor.samples,
                               " samples of context ", cursor.context, " from ",
                               cursor.sources.size(), " sources."));
  }
  return cursor;
}

void require_same_data(const DataCursor& saved, const DataCursor& now) {
  const auto differ = [](const std::string& what, const auto& was, const auto& is) {
    throw StateError(base::str("the data are not those of the saved run: ", what, " was ", was,
                               ", is ", is,
                               ".\n  Give the run the data and settings it had, or begin anew."));
  };
  if (saved.context != now.context) differ("model.context", saved.context, now.context);
  if (saved.shuffle != now.shuffle) differ("data.shuffle", saved.shuffle, now.shuffle);
  if (saved.seed != now.seed && saved.shuffle) differ("run.seed", saved.seed, now.seed);
  if (saved.sources.size() != now.sources.size()) {
    differ("the number of sources", saved.sources.size(), now.sources.size());
  }
  for (size_t s = 0; s < saved.sources.size(); ++s) {
    if (saved.sources[s].same_data(now.sources[s])) continue;
    differ(base::str("source ", s), text_of(saved.sources[s]), text_of(now.sources[s]));
  }
}

}  // namespace lockstep::input
