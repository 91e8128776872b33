/// What a model says of the first tokens of a text, for a comparison with another program:
///
///   ids     I64 (S)       tokens 0 to S - 1 of the file; S: the context, or all there are
///   logits  F32 (S, V)    of the token that follows each
#pragma once

#include <string>

#include "lockstep/comm/rank_context.h"
#include "lockstep/input/token_source.h"
#include "lockstep/models/language_model.h"

namespace lockstep {

/// Writes `path`, a safetensors file. Throws StateError if it cannot be written.
void write_logits(const std::string& path, models::LanguageModel& model,
                  const input::TokenSource& tokens, int64_t context, const RankContext& ranks);

}  // namespace lockstep
