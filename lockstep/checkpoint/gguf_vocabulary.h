/// A tokenizer as llama.cpp has it: its model "gpt2", byte pairs over letters that stand for bytes.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/files/gguf.h"

namespace lockstep::checkpoints {

/// The keys tokenizer.ggml.* for `vocab` ids of the tokenizer: "bytes" (256 letters, no merge) or
/// "r50k" alias "gpt2". Ids that name no token are marked as unused.
///
/// throws  UsageError: another tokenizer, and why; fewer ids than it has. EnvironmentError: its
///         vocabulary is not in `folder`
files::GgufKeys gguf_vocabulary(const std::string& tokenizer, int64_t vocab,
                                const std::string& folder);

}  // namespace lockstep::checkpoints
