/// Hugging Face folders of GPT-2 and Llama: config.json, and weights in one safetensors file or in
/// several with an index.
///
/// Read    F32, F16, BF16; with the prefix "transformer." or without; buffers are passed over
/// Holds   one tensor at a time, as fp32 and in the file's type        test:
/// HuggingFace.HoldsATensor Source  docs/concepts/model_formats.md
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints {

/// Whether the folder's config.json is one of a model of Hugging Face.
bool is_hugging_face(const std::string& folder);

/// Throws StateError naming file and reason (hugging_face_config.h, renamed_weights.h).
std::unique_ptr<Weights> open_hugging_face(const std::string& folder);

struct HuggingFaceOptions {
  std::string dtype = "F32";  // F32 | BF16 | F16: rounded to the nearest
  /// A file holds no more, if its tensors let it: else there are several and an index.
  int64_t file_bytes = 5'000'000'000;
};

/// Writes `weights` as a folder that was not there, or was empty: whole or not at all. The result
/// says in sentences what is not as a user might think. Throws UsageError: a family that Hugging
/// Face has no model of, another dtype, a folder with files in it. StateError: it cannot be
/// written.
std::vector<std::string> write_hugging_face(const Weights& weights, const std::string& folder,
                                            const HuggingFaceOptions& options = {});

}  // namespace lockstep::checkpoints
