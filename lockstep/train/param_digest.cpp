#include "lockstep/train/param_digest.h"

namespace lockstep {

std::string param_digest(const state::ParamStore& params, const RankContext& context,
                         const ModelParts* parts) {
  const auto counts = [parts](int param) {
    return parts == nullptr || parts->counts[static_cast<size_t>(param)];
  };
  const std::string own = params.digest(counts).text();
  ProcessGroup* const holders = parts != nullptr ? context.model.get() : context.gather.get();
  const bool whole_here = params.units() == nullptr && parts == nullptr;
  if (whole_here || holders == nullptr) return own;
  // By the world, so that the groups' ledgers hold what steps moved. One replica has it all; where
  // parameters are whole, every rank that divides the rest of the state has the same.
  const std::vector<std::string> texts =
      context.world->gather_text(own + ' ' + std::to_string(context.dp->rank()));
  const int shards = params.units() != nullptr ? context.gather->size() : 1;
  plan::Digest digest;
  for (const std::string& text : texts) {
    const size_t space = text.find(' ');
    if (std::stoi(text.substr(space + 1)) >= shards) continue;
    digest.add(plan::parse_digest(text.substr(0, space)));
  }
  return digest.text();
}

}  // namespace lockstep
