#include "lockstep/report/detail/logical_tensors.h"

#include <algorithm>
#include <cmath>

namespace lockstep::report::detail {
namespace {

using files::StepWitness;
using files::WitnessPiece;

size_t numel_of(const plan::Param& param) {
  int64_t numel = 1;
  for (const int64_t size : plan::logical_shape(param)) numel *= size;
  return static_cast<size_t>(numel);
}

/// Visits the parts of a piece that are no padding.
template <class Visit>
void for_each_part(const StepWitness& witness, const WitnessPiece& piece, Visit visit) {
  const plan::Param& param = witness.table.params[static_cast<size_t>(piece.param)];
  for (const plan::LogicalRun& run : plan::logical_runs(param, piece.lo, piece.hi)) {
    if (run.first < 0) continue;
    visit(param, Part{witness.rank, piece.values.data() + (run.lo - piece.lo), run});
  }
}

}  // namespace

int layer_in(const std::string& name) {
  for (size_t at = 0; at < name.size(); ++at) {
    const bool begins = at == 0 || name[at - 1] == '.';
    size_t end = at;
    while (end < name.size() && end - at < 9 && name[end] >= '0' && name[end] <= '9') ++end;
    if (begins && end > at && (end == name.size() || name[end] == '.')) {
      return std::stoi(name.substr(at, end - at));
    }
  }
  return -1;
}

std::vector<std::string> logical_order(const plan::ParamTable& table) {
  std::vector<std::string> order;
  for (const plan::Param& param : table.params) {
    const std::string& name = plan::logical_name(param);
    if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
  }
  return order;
}

std::map<Tensor, Whole> wholes_of(const StepWitness& alone) {
  std::map<Tensor, Whole> wholes;
  for (const WitnessPiece& piece : alone.pieces) {
    for_each_part(alone, piece, [&](const plan::Param& param, const Part& part) {
      Whole& whole = wholes[{piece.kind, plan::logical_name(param)}];
      whole.values.resize(numel_of(param));
      whole.is_there.resize(numel_of(param));
      whole.is_held.resize(numel_of(param));
      for (int64_t i = 0; i < part.run.size(); ++i) {
        const auto at = static_cast<size_t>(part.run.first + i);
        whole.values[at] = part.values[i];
        whole.is_there[at] = 1;
        whole.largest = std::max(whole.largest, std::abs(static_cast<double>(part.values[i])));
      }
    });
  }
  return wholes;
}

std::map<Tensor, std::vector<Part>> parts_of(const std::vector<const StepWitness*>& ranks) {
  std::map<Tensor, std::vector<Part>> parts;
  for (const StepWitness* witness : ranks) {
    for (const WitnessPiece& piece : witness->pieces) {
      for_each_part(*witness, piece, [&](const plan::Param& param, const Part& part) {
        parts[{piece.kind, plan::logical_name(param)}].push_back(part);
      });
    }
  }
  return parts;
}

}  // namespace lockstep::report::detail
