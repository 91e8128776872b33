/// What a rank can testify about a training step, in a file a step and rank: its loss, norm,
/// gradients, moments and parameters, and digests of what went through it. `lockstep verify`
/// compares the files of two layouts (report/equivalence.h).
///
///   FOLDER/step_00000000.rank_0002.safetensors
///   metadata "witness": JSON of all but the values; tensor "3": the values of piece 3
///
/// Holds   a copy of the rank's gradients, moments and parameters: for small models
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/plan/digest.h"
#include "lockstep/plan/param_table.h"

namespace lockstep::files {

/// Elements lo <= i < hi of a parameter's tensor on this rank, or of what belongs to them. A rank
/// writes the gradients and moments of its own shards and every parameter that it holds, whether or
/// not another rank has the same.
struct WitnessPiece {
  std::string kind;  // gradient | moment1 | moment2 | parameter
  int param = -1;    // in the rank's table
  int64_t lo = 0;
  int64_t hi = 0;
  std::vector<float> values;
  bool operator==(const WitnessPiece&) const = default;
};

/// One tensor of a leaf by its digest. Digests of one kind, name, leaf and micro-batch are added
/// over the ranks: each has its own elements' terms, by their indices in the logical tensor.
struct WitnessDigest {
  std::string kind;  // activation | leaf-gradient
  std::string name;  // of the layer; of the logical parameter
  int leaf = -1;
  int micro = -1;  // of an activation
  plan::Digest digest;
  bool operator==(const WitnessDigest&) const = default;
};

struct StepWitness {
  int rank = 0;
  int64_t step = 0;  // from 0, as runs count
  double loss = 0;
  double grad_norm = 0;
  plan::ParamTable table;  // of the rank's part of the model
  std::vector<WitnessDigest> digests;
  std::vector<WitnessPiece> pieces;
};

/// Makes the folder where it is not there. Throws UsageError: a piece that does not lie in its
/// parameter, or has another number of values. StateError: the file cannot be written.
void write_witness(const std::string& folder, const StepWitness& witness);

/// All witnesses of a folder, by step, then rank; none where there is no folder. Throws StateError
/// naming the file and what is wrong with it.
std::vector<StepWitness> read_witness(const std::string& folder);

}  // namespace lockstep::files
