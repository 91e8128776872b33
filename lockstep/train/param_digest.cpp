#include "lockstep/train/param_digest.h"

namespace lockstep {

std::string param_digest(const state::ParamStore& params, const RankContext& context) {
  const std::string own = params.digest().text();
  if (params.units() == nullptr) return own;
  // By the world, so that the groups' ledgers hold what steps moved. One replica has it all.
  const std::vector<std::string> parts = context.world->gather_text(own);
  plan::Digest digest;
  for (int rank = 0; rank < context.gather->size(); ++rank) {
    digest.add(plan::parse_digest(parts[static_cast<size_t>(rank)]));
  }
  return digest.text();
}

}  // namespace lockstep
