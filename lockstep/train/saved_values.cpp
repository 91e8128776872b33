#include "lockstep/train/saved_values.h"

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/plan/write_share.h"

namespace lockstep {
namespace {

/// Makes runs of pieces.
class Runs {
 public:
  Runs(ModelState& state, ParamAverage* average) : state_(state), average_(average) {
    int64_t at = 0;
    for (const plan::Piece& piece : state.params().pieces()) {
      before_.push_back(at);  // in the average
      at += piece.size();
    }
  }

  void add(const std::vector<plan::Piece>& trained, const std::vector<plan::Piece>& fixed) {
    for (const plan::Piece& piece : trained) add_master(piece);
    for (const plan::Piece& piece : fixed) {
      add_master(piece);
      // Where parameters are whole, those that divide the rest of the state hold these alike.
      const bool alike = state_.params().units() == nullptr && state_.params().rank() != 0;
      if (alike) runs_.back().counts = false;
    }
    const plan::Optimizer optimizer = state_.inputs().optimizer;
    for (int moment = 0; moment < plan::traits_of(optimizer).moments; ++moment) {
      for (const plan::Piece& piece : trained) {
        add_moment(piece, moment, checkpoints::moment_kind(optimizer, moment));
      }
    }
    if (average_ != nullptr) {
      for (const plan::Piece& piece : trained) add_average(piece);
    }
  }

  void add_running_values(bool counts) {
    for (const NamedTensor& value : state_.running_values()) {
      add_running(value);
      runs_.back().counts = counts;
    }
  }

  std::vector<HeldRun> take() { return std::move(runs_); }

 private:
  HeldRun& begin(const plan::Piece& piece, const std::string& kind) {
    HeldRun& run = runs_.emplace_back();
    run.kind = kind;
    run.param = state_.params().table().params[static_cast<size_t>(piece.param)];
    run.lo = piece.lo;
    run.hi = piece.hi;
    const ModelParts* const parts = state_.parts();
    run.counts = parts == nullptr || parts->counts[static_cast<size_t>(piece.param)];
    return run;
  }

  /// The run's values are `memory` on.
  static void in_memory(HeldRun& run, float* memory) {
    run.memory = memory;
    run.read = [memory, first = run.lo](int64_t lo, int64_t hi, float* into) {
      std::copy_n(memory + (lo - first), hi - lo, into);
    };
    run.write = [memory, first = run.lo](int64_t lo, int64_t hi, const float* from) {
      std::copy_n(from, hi - lo, memory + (lo - first));
    };
  }

  static plan::Piece part(const plan::Piece& piece, int64_t lo, int64_t hi) {
    plan::Piece of = piece;
    of.lo = lo;
    of.hi = hi;
    of.in_unit += lo - piece.lo;
    return of;
  }

  void add_master(const plan::Piece& piece) {
    HeldRun& run = begin(piece, checkpoints::kParam);
    state::ParamStore& params = state_.params();
    const bool in_file = params.units() != nullptr && params.units()->in_file();
    if (params.units() == nullptr) {
      in_memory(run, params.master(piece.param) + piece.lo);
      return;
    }
    if (!in_file && state_.inputs().table.params[static_cast<size_t>(piece.param)].trainable) {
      in_memory(run, params.master(piece));
      return;
    }
    run.read = [&params, piece](int64_t lo, int64_t hi, float* into) {
      params.read_piece(part(piece, lo, hi), into);
    };
    run.write = [&params, piece](int64_t lo, int64_t hi, const float* from) {
      params.write_piece(part(piece, lo, hi), from);
    };
  }

  /// The span, as the optimizer numbers them, that a piece is a part of.
  size_t span_of(const plan::Piece& piece) const {
    const std::vector<plan::Piece>& spans = state_.params().pieces();
    const auto holds = [&piece](const plan::Piece& span) {
      return span.param == piece.param && span.lo <= piece.lo && piece.hi <= span.hi;
    };
    const auto found = std::find_if(spans.begin(), spans.end(), holds);
    LOCKSTEP_ASSERT(found != spans.end(), "what is written is held");
    return static_cast<size_t>(found - spans.begin());
  }

  void add_moment(const plan::Piece& piece, int moment, const std::string& kind) {
    HeldRun& run = begin(piece, kind);
    const size_t span = span_of(piece);
    optim::Updater& optimizer = state_.optimizer();
    const int64_t first = state_.params().pieces()[span].lo;  // of the span, in the parameter
    if (optimizer.moment(moment, span) != nullptr) {
      in_memory(run, optimizer.moment_to_write(moment, span) + (piece.lo - first));
      return;
    }
    run.read = [&optimizer, moment, span, first](int64_t lo, int64_t hi, float* into) {
      optimizer.read_moment(moment, span, lo - first, hi - first, into);
    };
    run.write = [&optimizer, moment, span, first](int64_t lo, int64_t hi, const float* from) {
      optimizer.write_moment(moment, span, lo - first, hi - first, from);
    };
  }

  void add_average(const plan::Piece& piece) {
    HeldRun& run = begin(piece, checkpoints::kAverage);
    const size_t span = span_of(piece);
    const int64_t in_span = piece.lo - state_.params().pieces()[span].lo;
    in_memory(run, average_->values().data() + before_[span] + in_span);
  }

  void add_running(const NamedTensor& value) {
    HeldRun& run = runs_.emplace_back();
    run.kind = checkpoints::kRunning;
    run.param = {.name = value.name,
                 .shape = value.tensor.sizes().vec(),
                 .numel = value.tensor.numel(),
                 .init = {},
                 .uses = {value.name}};
    run.hi = value.tensor.numel();
    in_memory(run, value.tensor.data_ptr<float>());
  }

  ModelState& state_;
  ParamAverage* average_;
  std::vector<int64_t> before_;
  std::vector<HeldRun> runs_;
};

/// Of parts of a model, what no other part counts.
std::vector<plan::Piece> counted(const ModelState& state, std::vector<plan::Piece> pieces) {
  const ModelParts* const parts = state.parts();
  if (parts == nullptr) return pieces;
  std::erase_if(pieces, [parts](const plan::Piece& piece) {
    return !parts->counts[static_cast<size_t>(piece.param)];
  });
  return pieces;
}

}  // namespace

ProcessGroup* holders_of(const RankContext& context) {
  return context.model ? context.model.get() : context.gather.get();
}

std::vector<HeldRun> held_runs(ModelState& state, ParamAverage* average,
                               const RankContext& context) {
  Runs runs(state, average);
  runs.add(state.params().pieces(), state.params().fixed_pieces());
  const ProcessGroup* const holders = holders_of(context);
  runs.add_running_values(/*counts=*/holders == nullptr || holders->rank() == 0);
  return runs.take();
}

std::vector<HeldRun> written_runs(ModelState& state, ParamAverage* average,
                                  const RankContext& context) {
  // Ranks that hold the same pieces: where state is divided, those of the other replicas.
  const ProcessGroup& all = *context.dp;
  const ProcessGroup& same = context.replica ? *context.replica : all;
  const ProcessGroup& same_fixed = state.params().units() != nullptr ? same : all;
  Runs runs(state, average);
  runs.add(plan::write_share(counted(state, state.params().pieces()), same.rank(), same.size()),
           plan::write_share(counted(state, state.params().fixed_pieces()), same_fixed.rank(),
                             same_fixed.size()));
  if (context.world->rank() == 0) runs.add_running_values(/*counts=*/true);
  return runs.take();
}

checkpoints::SliceToWrite slice_of(const HeldRun& run) {
  checkpoints::SliceToWrite slice;
  slice.tensor.kind = run.kind;
  slice.tensor.name = plan::logical_name(run.param);
  slice.tensor.shape = plan::logical_shape(run.param);
  if (!run.param.slice.logical.empty()) {
    slice.tensor.dim = run.param.slice.dim;
    slice.tensor.blocks = run.param.slice.blocks;
    slice.tensor.grains = run.param.slice.grains;
    slice.grain = run.param.slice.grain;
  }
  slice.lo = run.lo;
  slice.hi = run.hi;
  return slice;
}

}  // namespace lockstep
