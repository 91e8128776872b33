#include "lockstep/train/logits_file.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "lockstep/files/safetensors.h"

namespace lockstep {

void write_logits(const std::string& path, models::LanguageModel& model,
                  const input::TokenSource& tokens, int64_t context, const RankContext& ranks) {
  const at::NoGradGuard no_graph;
  const int64_t length = std::min(context, tokens.size());
  at::Tensor ids = at::empty({1, length}, at::kLong);
  tokens.read(0, length, ids.data_ptr<int64_t>());
  const at::Tensor logits = model.logits(ids, ranks).to(at::kFloat).contiguous();
  files::write_safetensors(path,
                           {{.name = "ids",
                             .dtype = "I64",
                             .shape = {length},
                             .data = ids.data_ptr<int64_t>(),
                             .bytes = length * 8},
                            {.name = "logits",
                             .dtype = "F32",
                             .shape = {length, logits.size(2)},
                             .data = logits.data_ptr<float>(),
                             .bytes = logits.numel() * 4}},
                           {});
}

}  // namespace lockstep
