#include "lockstep/train/checkpoint_load.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/train/saved_values.h"

namespace lockstep {
namespace {

using checkpoints::ReadProof;

constexpr int64_t kBlock = int64_t{1} << 20;  // elements that go to a file at a time

/// A rank's values before they are put in place.
class Values {
 public:
  /// `runs` must outlive this.
  explicit Values(std::vector<HeldRun>& runs) : runs_(runs) {}

  void read(const checkpoints::Reader& reader, ReadProof& proof) {
    for (HeldRun& run : runs_) {
      ReadProof* const proves = run.counts ? &proof : nullptr;
      if (run.memory != nullptr) {
        std::vector<float>& values = in_memory_.emplace_back(static_cast<size_t>(run.size()));
        reader.read(run.kind, run.param, run.lo, run.hi, values.data(), proves);
        continue;
      }
      // Memory is what such a run is short of.
      std::vector<float> values;
      for (int64_t lo = run.lo; lo < run.hi; lo += kBlock) {
        const int64_t hi = std::min(run.hi, lo + kBlock);
        values.resize(static_cast<size_t>(hi - lo));
        reader.read(run.kind, run.param, lo, hi, values.data(), proves);
        run.write(lo, hi, values.data());
      }
    }
  }

  void put_in_place() {
    size_t next = 0;
    for (HeldRun& run : runs_) {
      if (run.memory != nullptr) run.write(run.lo, run.hi, in_memory_[next++].data());
    }
  }

 private:
  std::vector<HeldRun>& runs_;
  std::vector<std::vector<float>> in_memory_;
};

/// Throws the first rank's error on all of them.
void agree(ProcessGroup& world, const std::string& mine) {
  for (const std::string& failure : world.gather_text(mine)) {
    if (!failure.empty()) throw StateError(failure);
  }
}

std::string text_of(const ReadProof& proof) {
  nlohmann::json json = nlohmann::json::array();
  for (size_t file = 0; file < proof.values.size(); ++file) {
    json.push_back({proof.values[file].text(), proof.elements[file]});
  }
  return json.dump();
}

/// Of all ranks that hold a replica together.
ReadProof sum_of(ProcessGroup& holders, const ReadProof& mine) {
  ReadProof sum{.values = std::vector<plan::Digest>(mine.values.size()),
                .elements = std::vector<int64_t>(mine.values.size(), 0)};
  for (const std::string& text : holders.gather_text(text_of(mine))) {
    const auto json = nlohmann::json::parse(text);
    if (json.size() != sum.values.size()) throw StateError("ranks read different checkpoints.");
    for (size_t file = 0; file < json.size(); ++file) {
      sum.values[file].add(plan::parse_digest(json[file][0].get<std::string>()));
      sum.elements[file] += json[file][1].get<int64_t>();
    }
  }
  return sum;
}

}  // namespace

LoadedCheckpoint load_checkpoint(const std::string& folder, ModelState& state,
                                 ParamAverage* average, const RankContext& context) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<HeldRun> runs = held_runs(state, average, context);
  Values values(runs);
  std::optional<checkpoints::Reader> reader;
  ReadProof proof;
  std::string failure;
  try {
    reader.emplace(folder);
    proof = reader->proof();
    values.read(*reader, proof);
  } catch (const StateError& error) {
    failure = error.what();
  }
  agree(*context.world, failure);
  ProcessGroup* const holders = holders_of(context);
  if (holders != nullptr) proof = sum_of(*holders, proof);
  try {
    reader->check(proof);
  } catch (const StateError& error) {
    failure = error.what();
  }
  agree(*context.world, failure);
  values.put_in_place();
  state.publish();
  const std::string digest = state.digest();
  if (digest != reader->manifest().param_digest) {
    throw StateError(base::str(folder, ": its parameters have digest ", digest,
                               ", the manifest says ", reader->manifest().param_digest, "."));
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return {
      .manifest = reader->manifest(), .bytes_read = reader->bytes_read(), .seconds = taken.count()};
}

}  // namespace lockstep
