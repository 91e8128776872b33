/// What rank 0 of a benchmark prints: a table in nccl-tests' columns, and one JSON object.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/cli/bench_measurement.h"

namespace lockstep::cli {

class BenchReport {
 public:
  BenchReport(const BenchOptions& options, int ranks);

  /// The rows that follow are of that algorithm.
  void begin(plan::Algorithm algorithm);
  void add(const Measurement& measurement, const Timing& apart, const Timing& in_place);
  /// No more rows of that algorithm come.
  void end(plan::Algorithm algorithm);
  void finish();

 private:
  /// Of a network that is not there: which algorithm should be the fastest.
  void say_formulas() const;
  nlohmann::json column(int64_t bytes, const Timing& timing);

  const BenchOptions& options_;
  const int ranks_;
  std::FILE* const to_;
  nlohmann::json rows_ = nlohmann::json::array();
  nlohmann::json fits_ = nlohmann::json::array();
  std::vector<double> fitted_bytes_;    // of the algorithm under way
  std::vector<double> fitted_seconds_;  // medians of its rows, in place where there are such
  int64_t wrong_ = 0;
  double bus_bandwidth_ = 0;
  int columns_ = 0;
};

}  // namespace lockstep::cli
