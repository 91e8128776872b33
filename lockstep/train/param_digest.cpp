#include "lockstep/train/param_digest.h"

namespace lockstep {

plan::Digest digest_of(const std::vector<NamedTensor>& running_values) {
  plan::Digest digest;
  for (const NamedTensor& value : running_values) {
    digest.add(value.name, 0, value.tensor.data_ptr<float>(), value.tensor.numel());
  }
  return digest;
}

std::string param_digest(const state::ParamStore& params, const RankContext& context,
                         const ModelParts* parts, const std::vector<NamedTensor>& running_values) {
  const auto counts = [parts](int param) {
    return parts == nullptr || parts->counts[static_cast<size_t>(param)];
  };
  plan::Digest own = params.digest(counts);
  ProcessGroup* const holders = parts != nullptr ? context.model.get() : context.gather.get();
  const bool whole_here = params.units() == nullptr && parts == nullptr;
  const plan::Digest running = digest_of(running_values);
  if (whole_here || holders == nullptr) {
    own.add(running);
    return own.text();
  }
  // By the world, so that the groups' ledgers hold what steps moved. One replica has it all; where
  // parameters are whole, every rank that divides the rest of the state has the same.
  const std::vector<std::string> texts =
      context.world->gather_text(own.text() + ' ' + std::to_string(context.dp->rank()));
  const int shards = params.units() != nullptr ? context.gather->size() : 1;
  plan::Digest digest = running;
  for (const std::string& text : texts) {
    const size_t space = text.find(' ');
    if (std::stoi(text.substr(space + 1)) >= shards) continue;
    digest.add(plan::parse_digest(text.substr(0, space)));
  }
  return digest.text();
}

}  // namespace lockstep
