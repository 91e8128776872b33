/// Text from a trained model, one token at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/models/language_model.h"

namespace lockstep {

struct GenerationOptions {
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: all
  uint64_t seed = 1;
  int64_t context = 0;  // of the model
};

/// The tokens that follow `prompt` (not empty). Draws come from counters: one seed, one text.
std::vector<int64_t> generate(models::LanguageModel& model, std::vector<int64_t> prompt,
                              const GenerationOptions& options);

}  // namespace lockstep
