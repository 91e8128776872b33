/// Layouts that a run must not depend on.
#pragma once

#include <ostream>
#include <vector>

#include "tests/train/tiny_run.h"

namespace lockstep::testing {

struct Layout {
  int data = 1;
  const char* shard = "none";
  int pipeline = 1;
  int tensor = 1;

  int ranks() const { return data * pipeline * tensor; }
  void set(plan::TrainConfig& config) const {
    config.parallel.shard = shard;
    config.parallel.pipeline = pipeline;
    config.parallel.tensor = tensor;
  }
};

/// A run whose layout a test changes.
struct LayoutRun : TinyRun {
  nlohmann::json run_with(const Layout& layout) {
    layout.set(config);
    return run(layout.ranks());
  }
};

inline std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << "dp " << layout.data << " " << layout.shard << " pp " << layout.pipeline << " tp "
             << layout.tensor;
}

/// Data ranks, shards of each kind, and stages: all with the bits of one rank.
inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {{.data = 2},
                                          {.data = 3},
                                          {.data = 4},
                                          {.data = 2, .shard = "zero1"},
                                          {.data = 3, .shard = "zero2"},
                                          {.data = 2, .shard = "zero3"},
                                          {.data = 4, .shard = "zero3"},
                                          {.pipeline = 2},
                                          {.data = 2, .shard = "zero1", .pipeline = 2},
                                          {.data = 2, .shard = "zero3", .pipeline = 2}};
  return all;
}

/// The same for a model in two tensor grains.
inline const std::vector<Layout>& tensor_layouts() {
  static const std::vector<Layout> all = {{.tensor = 2},
                                          {.data = 2, .tensor = 2},
                                          {.data = 2, .shard = "zero3", .tensor = 2},
                                          {.pipeline = 2, .tensor = 2}};
  return all;
}

}  // namespace lockstep::testing
