/// Model files of llm.c (`model_00010000.bin`): GPT-2 in fp32 or bf16.
///
///   256 int32: 20240326, version (3: fp32, 5: bf16), context, vocabulary, layers, heads, width,
///              rows of the embedding's table (padded)
///   tensors, each kind for all layers before the next kind; linear weights (out, in)
///
/// Source  github.com/karpathy/llm.c, train_gpt2.cu, train_gpt2.py
#pragma once

#include <memory>
#include <string>

#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints {

bool is_llmc_model(const std::string& path);
/// Throws StateError naming file and reason: another version, sizes that do not fit the file's.
std::unique_ptr<Weights> open_llmc(const std::string& path);

}  // namespace lockstep::checkpoints
