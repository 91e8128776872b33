#include "lockstep/input/training_data.h"

#include <algorithm>

#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::input {
namespace {

constexpr int64_t kMillion = 1'000'000;

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(" \t"));
  text.erase(text.find_last_not_of(" \t") + 1);
  return text;
}

/// "0.7" of "0.7:a.bin"; empty where no number and colon stand in front.
std::string weight_of(const std::string& part) {
  const size_t colon = part.find(':');
  if (colon == std::string::npos || colon == 0) return "";
  const std::string weight = part.substr(0, colon);
  return weight.find_first_not_of("0123456789.") == std::string::npos ? weight : "";
}

/// A weight in millionths: exact, since only ratios of whole numbers can be kept exactly.
int64_t millionths(const std::string& weight) {
  const size_t point = weight.find('.');
  const std::string whole = weight.substr(0, point);
  std::string part = point == std::string::npos ? "" : weight.substr(point + 1);
  const bool digits = part.find('.') == std::string::npos && whole.size() + part.size() > 0;
  if (!digits || whole.size() > 6 || part.size() > 6) {
    throw UsageError(base::str("data.train: the weight \"", weight,
                               "\" is no decimal number with at most six digits on each side of "
                               "its point."));
  }
  part.resize(6, '0');
  return (whole.empty() ? 0 : std::stoll(whole)) * kMillion + std::stoll(part);
}

std::vector<int64_t> weights_of(const std::vector<TrainingData::Source>& sources) {
  std::vector<int64_t> weights;
  for (const auto& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

std::vector<SourceName> parse_sources(const std::string& text) {
  if (weight_of(trimmed(text)).empty()) return {{.path = text}};
  std::vector<SourceName> sources;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = trimmed(text.substr(at, end - at));
    const std::string weight = weight_of(part);
    const std::string path = trimmed(part.substr(std::min(part.size(), weight.size() + 1)));
    if (weight.empty() || path.empty()) {
      throw UsageError(base::str("data.train: \"", part,
                                 "\" is no WEIGHT:PATH, as the source before it is.\n  Several "
                                 "sources are written \"0.7:a.bin, 0.3:b.bin\"."));
    }
    if (millionths(weight) == 0) {
      throw UsageError(base::str("data.train: the weight of ", path, " is 0. Leave it out."));
    }
    sources.push_back({.weight = weight, .path = path});
    at = end + 1;
  }
  return sources;
}

TrainingData::TrainingData(std::vector<Source> sources)
    : sources_(std::move(sources)), order_(weights_of(sources_)) {
  for (const Source& source : sources_) {
    if (source.sampler.context != context()) {
      throw UsageError("the sources of the training data have windows of one context.");
    }
    require_window(*source.tokens, context());
    if (source.sampler.tokens > source.tokens->size() || source.sampler.windows() < 1) {
      throw UsageError(base::str("the sampler is made for ", source.sampler.tokens, " tokens, but ",
                                 source.tokens->path(), " has ", source.tokens->size(), "."));
    }
  }
}

std::shared_ptr<const TrainingData> TrainingData::open(const std::string& text,
                                                       const SampleSettings& settings) {
  std::vector<Source> sources;
  for (const SourceName& name : parse_sources(text)) {
    const auto tokens = TokenFile::open(name.path);
    const uint64_t number = sources.size();
    const uint64_t seed = number == 0
                              ? settings.seed
                              : base::RandomKey(settings.seed).with("source").with(number).bits(0);
    sources.push_back({.weight = millionths(name.weight),
                       .tokens = tokens,
                       .sampler = {.tokens = tokens->size(),
                                   .context = settings.context,
                                   .seed = seed,
                                   .shuffle = settings.shuffle}});
  }
  return std::make_shared<TrainingData>(std::move(sources));
}

int64_t TrainingData::tokens() const {
  int64_t tokens = 0;
  for (const Source& source : sources_) tokens += source.tokens->size();
  return tokens;
}

TrainingData::Place TrainingData::place_of(int64_t sample) const {
  const auto [source, number] = order_(sample);
  const Sampler& sampler = sources_[static_cast<size_t>(source)].sampler;
  return {source, sampler.epoch_of(number), sampler.first_token(number)};
}

void TrainingData::read(int64_t sample, int64_t* out) const {
  const Place place = place_of(sample);
  sources_[static_cast<size_t>(place.source)].tokens->read(place.first_token, context() + 1, out);
}

double TrainingData::epochs(int source, int64_t samples) const {
  return static_cast<double>(order_.count(source, samples)) /
         static_cast<double>(sources_[static_cast<size_t>(source)].sampler.windows());
}

double TrainingData::epochs(int64_t samples) const {
  double most = 0;
  for (int source = 0; source < std::ssize(sources_); ++source) {
    most = std::max(most, epochs(source, samples));
  }
  return most;
}

void TrainingData::check_ids(int64_t vocab) const {
  for (const Source& source : sources_) source.tokens->check_ids(vocab);
}

}  // namespace lockstep::input
