/// Whether a layout computes what one rank alone computes: the witnesses of both, side by side.
///
/// Every piece that any rank holds is compared, element by element, with the logical tensor of the
/// lone run: replicas that have drifted are found, and the rank. Every element of the lone run must
/// be held by somebody. The first difference is the one nearest to its cause, in this order:
///
///   step > activations by leaf, micro-batch, layer > loss > leaf gradients by leaf, from the last
///   layer to the first > gradients, likewise > norm > moments > parameters
///
/// Bound   n u M: u = 2^-24 is half a unit in the last place of 1, M the largest magnitude of the
///         lone run's tensor, n the tokens of a step plus the terms of the longest product. A sum
///         of n terms that is added in another order differs by at most (n - 1) u times the sum of
///         the terms' magnitudes (Higham 2002, "Accuracy and stability of numerical
///         algorithms", 4.2); a token's term is itself such a product, which is why the two numbers
///         add. That sum of magnitudes is never below M, mostly far above, and a value has passed
///         several sums: the bound is stricter than the true one. So what is beyond it may still be
///         a sum in another order, where AdamW makes a step out of a gradient that is nothing but
///         rounding; what is within it is not proven harmless, but no larger than rounding.
/// Source  what a layout may not change: docs/concepts/same_bits.md; the command:
/// docs/concepts/verify.md
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/files/witness_file.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::report {

enum class Verdict { equal, within, broken };

struct Difference {
  int64_t step = 0;  // from 1, as people count
  /// activation | loss | leaf-gradient | gradient | norm | moment1 | moment2 | parameter
  std::string kind;
  std::string name;  // of the logical parameter, or of the layer; empty: of the step
  int layer = -1;    // the number in the name
  int leaf = -1;
  int micro = -1;
  int rank = -1;       // that holds it; -1: several together
  int64_t index = -1;  // in the logical tensor, of the first element that differs
  double layout = 0;   // values; of a digest there are none
  double alone = 0;
  double difference = 0;  // nan: of digests
  double bound = 0;
};

struct KindResult {
  std::string kind;
  int64_t compared = 0;  // pieces of ranks, numbers, digests
  int64_t unequal = 0;   // in bits
  int64_t beyond = 0;    // the bound; digests have none
  double largest = 0;    // difference over its bound
};

struct Equivalence {
  Verdict verdict = Verdict::equal;
  std::optional<Difference> first;          // in bits
  std::optional<Difference> first_element;  // likewise, of single elements
  std::optional<Difference> first_beyond;   // the bound
  std::vector<KindResult> kinds;            // in the order above; all of them
  std::vector<std::string> missing;         // what one side has and the other has not
};

struct EquivalenceOptions {
  int ranks = 1;       // of the layout
  int64_t first = 1;   // step, from 1
  int64_t steps = 1;   // the last one: that each run has taken
  int64_t terms = 1;   // n of the bound
  bool exact = false;  // whatever is not equal is broken
  int moments = 2;     // of each parameter, that the lone run must have left
};

/// n of the bound for a run.
int64_t terms_of(const plan::TrainConfig& config);

/// broken: a value is beyond its bound, something is missing, or a digest differs though no value
/// does. within: something differs, and nothing is beyond.
Equivalence compare(const std::vector<files::StepWitness>& layout,
                    const std::vector<files::StepWitness>& alone,
                    const EquivalenceOptions& options);

/// "step 2: gradient of h.1.attn.c_proj.weight (layer 1) on rank 3: element 17 is 0.25, alone 0.5".
/// `other`: who has the second value, if not the lone run.
std::string text_of(const Difference& difference, const std::string& other = "alone");
/// A line a kind, then what differs first or is missing; without the verdict.
std::string text_of(const Equivalence& equivalence);
const char* name_of(Verdict verdict);  // "equal"
nlohmann::json to_json(const Equivalence& equivalence);

}  // namespace lockstep::report
