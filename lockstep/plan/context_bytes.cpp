#include "lockstep/plan/context_bytes.h"

namespace lockstep::plan {

ContextBytes context_bytes(const ContextShape& shape, const ContextPlace& place) {
  if (place.by_rank.size() == 1) return {};
  constexpr int64_t kKeysAndValues = 2, kFloat = 4;
  const int64_t own = shape.sequence / place.grains * place.local.size();
  const int64_t of_token = kKeysAndValues * shape.heads * shape.width * kFloat;
  const int64_t others = (shape.sequence - own) * of_token;
  return {.forward = others, .backward = others + shape.sequence * of_token};
}

}  // namespace lockstep::plan
