/// The training data of a run: one token source, or several with weights, and what each sample of
/// the run is. A function of the seed and the sample's number, as `Sampler` is for one source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/input/sampler.h"
#include "lockstep/input/source_order.h"
#include "lockstep/input/token_file.h"

namespace lockstep::input {

/// "a.bin", or "0.7:a.bin, 0.3:b.bin": weights are decimal numbers, only their ratios count.
struct SourceName {
  std::string weight = "1";
  std::string path;

  bool operator==(const SourceName&) const = default;
};

/// What `text` (the setting data.train) names. A text without a weight in front is one path,
/// commas and all. Throws UsageError: some parts have a weight and others none, a weight is not
/// above 0 or has more than six digits after the point.
std::vector<SourceName> parse_sources(const std::string& text);

struct SampleSettings {
  int64_t context = 0;
  uint64_t seed = 0;
  bool shuffle = true;
};

class TrainingData {
 public:
  struct Source {
    int64_t weight = 1;
    std::shared_ptr<const TokenSource> tokens;
    Sampler sampler;
  };

  /// Sources are sampled each in its own order: the first by the seed itself, so that one source
  /// alone is what `Sampler` says.
  ///
  /// throws  EnvironmentError: a source holds no window. UsageError: a sampler is made for more
  ///         tokens than its source has; samplers differ in context
  explicit TrainingData(std::vector<Source> sources);

  /// Opens the files that `text` names (parse_sources). Throws also what TokenFile::open does.
  static std::shared_ptr<const TrainingData> open(const std::string& text,
                                                  const SampleSettings& settings);

  const std::vector<Source>& sources() const { return sources_; }
  int64_t context() const { return sources_.front().sampler.context; }
  int64_t tokens() const;  // of all sources

  struct Place {
    int source = 0;
    int64_t epoch = 0;  // of that source
    int64_t first_token = 0;
  };
  Place place_of(int64_t sample) const;

  /// Copies the context + 1 tokens of a sample. Any thread may call.
  void read(int64_t sample, int64_t* out) const;

  /// Passes over `source` that the first `samples` samples of the run are, with fractions.
  double epochs(int source, int64_t samples) const;
  /// Of the source that is furthest.
  double epochs(int64_t samples) const;

  void check_ids(int64_t vocab) const;

 private:
  std::vector<Source> sources_;
  SourceOrder order_;
};

}  // namespace lockstep::input
