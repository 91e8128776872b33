#include "lockstep/train/start_weights.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr int64_t kElements = int64_t{1} << 16;  // read at once

/// As the model has it.
void require_shape(const checkpoints::Weights& weights, const std::string& name,
                   const std::vector<int64_t>& shape) {
  if (!weights.has(name)) {
    throw StateError(base::str(weights.origin().path, ": \"", name, "\" of the model is missing."));
  }
  if (weights.info(name).shape == shape) return;
  throw StateError(base::str(weights.origin().path, ": \"", name,
                             "\" has another shape than the model that it is for."));
}

}  // namespace

void fill_from(const checkpoints::Weights& weights, state::ParamStore& params,
               const std::vector<NamedTensor>& running_values) {
  std::vector<plan::Piece> pieces = params.pieces();
  const std::vector<plan::Piece> fixed = params.fixed_pieces();
  pieces.insert(pieces.end(), fixed.begin(), fixed.end());
  std::vector<float> values(kElements);
  for (const plan::Piece& whole : pieces) {
    const plan::Param& param = params.table().params[static_cast<size_t>(whole.param)];
    const std::string& name = plan::logical_name(param);
    require_shape(weights, name, plan::logical_shape(param));
    for (plan::Piece part = whole; part.lo < whole.hi; part.lo = part.hi) {
      part.hi = std::min(whole.hi, part.lo + kElements);
      part.in_unit = whole.in_unit + part.lo - whole.lo;
      for (const plan::LogicalRun& run : plan::logical_runs(param, part.lo, part.hi)) {
        float* const at = values.data() + run.lo - part.lo;
        if (run.first < 0) {
          std::fill_n(at, run.size(), 0.0f);
        } else {
          weights.read(name, run.first, run.size(), at);
        }
      }
      params.write_piece(part, values.data());
    }
  }
  for (const NamedTensor& value : running_values) {
    require_shape(weights, value.name, value.tensor.sizes().vec());
    weights.read(value.name, 0, value.tensor.numel(), value.tensor.data_ptr<float>());
  }
}

void start_from_weights(const plan::TrainConfig& config, int64_t vocab, ModelState& state) {
  if (config.run.from.empty()) return;
  const auto weights = checkpoints::open_weights(config.run.from);
  checkpoints::require_same_model(*weights, config, vocab);
  fill_from(*weights, state.params(), state.running_values());
  state.publish();
  const std::string& stated = weights->origin().param_digest;
  if (stated.empty()) return;
  const std::string digest = state.digest();
  if (digest == stated) return;
  throw StateError(base::str(config.run.from, ": its parameters have digest ", digest,
                             ", it states ", stated, ". The file is damaged."));
}

}  // namespace lockstep
