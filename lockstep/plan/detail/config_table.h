/// The table of a run's settings: each key's name, meaning, place in TrainConfig and range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/plan/train_config.h"

namespace lockstep::plan::detail {

// The five shapes a value can have. `at` finds the member that a key stands for.
struct Whole {
  int64_t* (*at)(TrainConfig&);
  int64_t lo;
  int64_t hi;
  std::optional<int64_t> automatic = {};  // what "auto" is stored as
};
struct Real {
  double* (*at)(TrainConfig&);
  double lo;
  double hi;
  bool above_lo = false;  // lo itself is refused
  bool below_hi = false;  // hi itself is refused
};
struct Flag {
  bool* (*at)(TrainConfig&);
};
struct Text {
  std::string* (*at)(TrainConfig&);
  bool may_be_empty = false;
  bool or_number = false;  // a file may write a number without quotes
};
struct Choice {
  std::string* (*at)(TrainConfig&);
  std::vector<std::string> words;
};

/// A key.
struct Row {
  std::string name;
  std::string doc;
  std::variant<Whole, Real, Flag, Text, Choice> kind;
};

/// In the order in which settings are shown.
const std::vector<Row>& config_table();

}  // namespace lockstep::plan::detail
