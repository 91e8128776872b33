/// nanoGPT's models in a safetensors file: GPT-2's names, linear weights (out, in), the number of
/// heads in the metadata ("n_head") or given by the user. Told from Hugging Face's by the shape of
/// c_attn.
///
/// Source  github.com/karpathy/nanoGPT, model.py
#pragma once

#include <memory>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::checkpoints {

/// Throws StateError naming file and reason: other names or shapes, heads that nobody says or that
/// do not divide the width.
std::unique_ptr<Weights> open_nanogpt(const files::SafetensorsFile& file,
                                      const OpenOptions& options);

}  // namespace lockstep::checkpoints
