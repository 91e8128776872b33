#include "lockstep/train/witness_recorder.h"

#include "lockstep/base/str.h"

namespace lockstep {

WitnessRecorder::WitnessRecorder(std::string folder, int64_t from, ModelState& state,
                                 RankContext& context, bool speaks)
    : folder_(std::move(folder)), from_(from), state_(state), context_(context), speaks_(speaks) {
  witness_.rank = context.world->rank();
  witness_.table = state.params().table();
  listener_ = state.grads().on_leaf(
      [this](int param, int leaf, const float* values) { see_leaf(param, leaf, values); });
  context.see_activation = [this](std::string_view layer, const at::Tensor& x) {
    see_activation(layer, x);
  };
}

WitnessRecorder::~WitnessRecorder() {
  state_.grads().forget_leaf(listener_);
  context_.see_activation = {};
}

void WitnessRecorder::see_leaf(int param, int leaf, const float* values) {
  if (!watches()) return;
  const ModelParts* const parts = state_.parts();
  if (parts != nullptr && !parts->counts[static_cast<size_t>(param)]) return;
  const plan::Param& of = witness_.table.params[static_cast<size_t>(param)];
  files::WitnessDigest seen{
      .kind = "leaf-gradient", .name = plan::logical_name(of), .leaf = leaf, .digest = {}};
  for (const plan::LogicalRun& run : plan::logical_runs(of, 0, of.numel)) {
    if (run.first >= 0) seen.digest.add(seen.name, run.first, values + run.lo, run.size());
  }
  witness_.digests.push_back(std::move(seen));
}

/// By the place of each element in the whole micro-batch [samples, sequence, width]; divided
/// activations are [slices, samples, positions of a slice, width], of context grains one of these
/// for each.
void WitnessRecorder::see_activation(std::string_view layer, const at::Tensor& x) {
  const plan::TensorPlace& tensor = context_.tensor;
  if (!watches() || !context_.training || (!tensor.sequence && !speaks_)) return;
  const at::Tensor values = x.detach().contiguous();
  const float* const data = values.data_ptr<float>();
  files::WitnessDigest seen{.kind = "activation",
                            .name = std::string(layer),
                            .leaf = context_.leaf,
                            .micro = context_.micro,
                            .digest = {}};
  const plan::ContextPlace& place = context_.sequence;
  const int64_t slices = tensor.grains == 1 ? 1 : values.size(-4);
  const int64_t samples = values.size(-3), tokens = values.size(-2), width = values.size(-1);
  const int64_t first = tensor.sequence ? tensor.local.lo : 0;
  const int64_t count = tensor.grains * tokens;  // of a grain
  const float* token = data;
  for (int grain = place.local.lo; grain < place.local.hi; ++grain) {
    const auto halves = plan::tokens_of(grain, place.grains, count * place.grains);
    for (int64_t t = first; t < first + slices; ++t) {
      for (int64_t b = 0; b < samples; ++b) {
        for (int64_t i = t * tokens; i < (t + 1) * tokens; ++i, token += width) {
          int64_t position = i;
          if (place.grains > 1) {
            position = i < count / 2 ? halves[0].lo + i : halves[1].lo + i - count / 2;
          }
          seen.digest.add(seen.name, (b * count * place.grains + position) * width, token, width);
        }
      }
    }
  }
  witness_.digests.push_back(std::move(seen));
}

void WitnessRecorder::write(int64_t step, double loss, double grad_norm) {
  if (!watches()) return;
  witness_.step = step;
  witness_.loss = loss;
  witness_.grad_norm = grad_norm;
  const state::ParamStore& params = state_.params();
  const std::vector<plan::Piece>& pieces = params.pieces();
  const auto keep = [&](const char* kind, const plan::Piece& piece, const float* values) {
    witness_.pieces.push_back({.kind = kind,
                               .param = piece.param,
                               .lo = piece.lo,
                               .hi = piece.hi,
                               .values = {values, values + piece.size()}});
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    keep("gradient", pieces[i], state_.grads().gradient(pieces[i]));
    const optim::Updater& optimizer = state_.optimizer();
    for (int kind = 0; optimizer.moment(kind, i) != nullptr; ++kind) {
      keep(kind == 0 ? "moment1" : "moment2", pieces[i], optimizer.moment(kind, i));
    }
  }
  if (params.units() != nullptr) {
    params.for_each_piece(pieces, [&](const plan::Piece& piece, const float* values) {
      keep("parameter", piece, values);
    });
  } else {
    for (size_t p = 0; p < witness_.table.params.size(); ++p) {
      const int index = static_cast<int>(p);
      keep("parameter", {.param = index, .lo = 0, .hi = witness_.table.params[p].numel},
           params.master(index));
    }
  }
  files::write_witness(folder_, witness_);
  witness_.digests.clear();
  witness_.pieces.clear();
}

}  // namespace lockstep
