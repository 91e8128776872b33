/// Checkpoints for tests: tensors of known values, cut as a test says and dealt to writers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/counter_random.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/part_file.h"
#include "lockstep/checkpoint/reader.h"

namespace lockstep::checkpoints::testing {

/// What element `i` of a logical tensor is: another one everywhere.
inline float value_of(const SavedTensor& tensor, int64_t i) {
  const base::RandomKey key = base::RandomKey(1).with(tensor.kind).with(tensor.name);
  return static_cast<float>(key.uniform(static_cast<uint64_t>(i)) - 0.5);
}

inline SavedTensor whole(const std::string& kind, const std::string& name,
                         std::vector<int64_t> shape) {
  return {.kind = kind, .name = name, .shape = std::move(shape), .blocks = {}, .slices = {}};
}

inline SavedTensor in_grains(const std::string& kind, const std::string& name,
                             std::vector<int64_t> shape, int dim, std::vector<int64_t> blocks,
                             int grains) {
  SavedTensor tensor = whole(kind, name, std::move(shape));
  tensor.dim = dim;
  tensor.blocks = std::move(blocks);
  tensor.grains = grains;
  return tensor;
}

/// Values of elements lo <= i < hi of a tensor or grain; padding is 0.
inline std::vector<float> values_of(const SavedTensor& tensor, int grain, int64_t lo, int64_t hi) {
  std::vector<float> values;
  for (const plan::LogicalRun& run : plan::logical_runs(tensor.grain_param(grain), lo, hi)) {
    for (int64_t i = 0; i < run.size(); ++i) {
      values.push_back(run.first < 0 ? 0 : value_of(tensor, run.first + i));
    }
  }
  return values;
}

/// Which writer gets which run of elements of which tensor's grain.
struct Dealt {
  size_t tensor = 0;
  int grain = 0;
  int64_t lo = 0;
  int64_t hi = 0;
  int writer = 0;
};

/// Runs of at most `piece` elements, dealt in turn.
inline std::vector<Dealt> deal(const std::vector<SavedTensor>& tensors, int writers,
                               int64_t piece) {
  std::vector<Dealt> dealt;
  for (size_t t = 0; t < tensors.size(); ++t) {
    for (int grain = 0; grain < tensors[t].grains; ++grain) {
      const int64_t numel = tensors[t].grain_param(grain).numel;
      for (int64_t lo = 0; lo < numel; lo += piece) {
        dealt.push_back({.tensor = t,
                         .grain = grain,
                         .lo = lo,
                         .hi = std::min(numel, lo + piece),
                         .writer = static_cast<int>(dealt.size()) % writers});
      }
    }
  }
  return dealt;
}

inline plan::TrainConfig a_config() {
  plan::TrainConfig config;
  config.run.steps = 40;
  config.model.vocab = 61;
  return config;
}

/// Writes the checkpoint; values are those of `value_of`, plus `more` in every element.
inline Manifest save(const std::string& target, const std::vector<SavedTensor>& tensors,
                     const std::vector<Dealt>& dealt, int writers, int64_t step = 20,
                     float more = 0) {
  Manifest manifest{.step = step,
                    .saved_at = "2024-05-01T12:00:00Z",
                    .config = a_config(),
                    .vocab = 61,
                    .identity = "kernels fused",
                    .param_digest = "",
                    .world = writers,
                    .state = {{"optimizer_steps", step}},
                    .rank_states = {},
                    .index_bytes = 0,
                    .index_sha256 = "",
                    .files = {}};
  Index index;
  std::filesystem::create_directories(std::filesystem::path(target).parent_path());
  const std::string unfinished = begin_folder(target);
  for (int writer = 0; writer < writers; ++writer) {
    std::vector<std::vector<float>> values;
    std::vector<SliceToWrite> slices;
    values.reserve(dealt.size());
    for (const Dealt& one : dealt) {
      if (one.writer != writer) continue;
      const SavedTensor& tensor = tensors[one.tensor];
      values.push_back(values_of(tensor, one.grain, one.lo, one.hi));
      for (float& value : values.back()) value += more;
      slices.push_back({.tensor = tensor,
                        .grain = one.grain,
                        .lo = one.lo,
                        .hi = one.hi,
                        .values = [&mine = values.back()] { return mine.data(); }});
    }
    const PartFile part = write_part(unfinished, writer, slices);
    add_report(report_text(part, slices), manifest, index);
  }
  plan::Digest params;
  for (const PartFile& part : manifest.files) params.add(part.params);
  manifest.param_digest = params.text();
  commit_folder(unfinished, target, manifest, index);
  return read_manifest(target);
}

/// Several kinds, a tensor in grains with padding, one cut in columns, one of blocks.
inline std::vector<SavedTensor> some_tensors() {
  std::vector<SavedTensor> tensors;
  for (const char* kind : {kParam, "exp_avg", "exp_avg_sq", kAverage}) {
    tensors.push_back(in_grains(kind, "wte.weight", {61, 8}, 0, {64}, 4));
    tensors.push_back(in_grains(kind, "h.0.attn.c_attn.weight", {24, 8}, 0, {8, 8, 8}, 4));
    tensors.push_back(in_grains(kind, "h.0.attn.c_proj.weight", {8, 8}, 1, {8}, 4));
    tensors.push_back(whole(kind, "ln_f.bias", {8}));
  }
  tensors.push_back(whole(kRunning, "norm.running_mean", {5}));
  return tensors;
}

/// Of 4 parts.
inline Manifest save_some(const std::string& target, int64_t step = 20, float more = 0) {
  const std::vector<SavedTensor> tensors = some_tensors();
  return save(target, tensors, deal(tensors, 4, 37), 4, step, more);
}

}  // namespace lockstep::checkpoints::testing
