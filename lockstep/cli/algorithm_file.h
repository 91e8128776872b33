/// Tables of algorithms as files, for people to read and to change.
///
///   schema = 1
///
///   [[tables]]
///   engine = "mpi"
///   ranks = 4
///   hosts = 1
///   machine = "4 cores of AMD EPYC, load 0.1"
///
///   [[tables.all_reduce]]
///   algorithm = "binomial"
///   up_to_bytes = 2048          # the last row of an operation has none: it goes on
///   measured_us = [
///     { bytes = 256, direct = [9.1, 0.4], halving = [8.2, 0.1], binomial = [7.5, 0.2] },
///   ]
///
/// A pair is a median of rounds and how far they lay apart. A row without `measured_us` was written
/// by hand, and counts as much.
#pragma once

#include <string>

#include "lockstep/plan/train_config.h"
#include "lockstep/plan/tuned_table.h"

namespace lockstep::cli {

inline constexpr int kAlgorithmFileSchema = 1;

/// Throws UsageError, naming the line and what to do: it is not there or no TOML; another schema;
/// an engine, operation, algorithm or key that does not exist (with the nearest); an algorithm that
/// is not one of the operation, or would change the order of a sum; sizes that do not rise, rows
/// after the one that has no end; two tables for the same ranks.
plan::TunedTable read_algorithm_file(const std::string& path);

/// The table, empty where there is no file yet. Throws as above.
plan::TunedTable read_algorithm_file_if_any(const std::string& path);

/// Whole or not at all. Throws StateError.
void write_algorithm_file(const std::string& path, const plan::TunedTable& table);

/// Puts what the file of comm.table says for `ranks` ranks on `hosts` hosts (0: of unequal sizes)
/// into the config, and returns what is to be said of that; empty where no file is named. An
/// algorithm that is forced goes before the file.
std::string follow_table(plan::TrainConfig& config, int ranks, int hosts);

std::string algorithm_file_text(const plan::TunedTable& table);

}  // namespace lockstep::cli
