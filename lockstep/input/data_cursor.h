/// Where a run stands in its data: one number, the samples consumed, and what it counts in.
///
/// Ranks do not come in: a run goes on from a cursor on any number of ranks, in the middle of an
/// epoch or not, with exactly the samples that the unbroken run would have had.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/input/training_data.h"

namespace lockstep::input {

struct SourceIdentity {
  std::string path;  // for people: data may move
  int64_t weight = 1;
  int64_t tokens = 0;
  std::string digest;  // of 64 stretches of the tokens: another text, another digest

  bool same_data(const SourceIdentity& other) const {
    return weight == other.weight && tokens == other.tokens && digest == other.digest;
  }
};

struct DataCursor {
  int64_t samples = 0;  // consumed since the run's beginning
  uint64_t seed = 0;
  int64_t context = 0;
  bool shuffle = true;
  std::vector<SourceIdentity> sources;
};

DataCursor data_cursor(const TrainingData& data, int64_t samples);

nlohmann::json to_json(const DataCursor& cursor);
/// Throws StateError: a key is missing, of another type, or a number that no cursor has.
DataCursor data_cursor_from_json(const nlohmann::json& json);

/// Throws StateError naming what differs, if `saved` counts in other data than `now` or in another
/// order: going on would repeat some samples and leave others out.
void require_same_data(const DataCursor& saved, const DataCursor& now);

}  // namespace lockstep::input
