#include "lockstep/checkpoint/nanogpt.h"

#include <charconv>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/gpt2_tokenizer.h"
#include "lockstep/checkpoint/renamed_weights.h"

namespace lockstep::checkpoints {
namespace {

/// torch.compile puts a word of its own before every name.
std::string prefix_of(const files::SafetensorsFile& file) {
  for (const char* const prefix : {"transformer.", "_orig_mod.transformer.", ""}) {
    if (file.has(base::str(prefix, "wte.weight"))) return prefix;
  }
  throw StateError(base::str(file.path(),
                             ": it holds no model that Lockstep knows: neither the metadata of a "
                             "model file of Lockstep nor a tensor \"transformer.wte.weight\"."));
}

const std::vector<int64_t>& matrix(const files::SafetensorsFile& file, const std::string& name) {
  const std::vector<int64_t>& shape = file.info(name).shape;
  if (shape.size() == 2 && shape[0] > 0 && shape[1] > 0) return shape;
  throw StateError(base::str(file.path(), ": \"", name, "\" is no matrix."));
}

int64_t heads_of(const files::SafetensorsFile& file, const OpenOptions& options, int64_t width) {
  int64_t heads = options.heads;
  const auto said = file.metadata().find("n_head");
  if (said != file.metadata().end()) {
    const std::string& text = said->second;
    int64_t in_file = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), in_file);
    if (error != std::errc{} || end != text.data() + text.size() || in_file < 1) {
      throw StateError(base::str(file.path(), ": its metadata say n_head \"", text, "\"."));
    }
    if (heads > 0 && heads != in_file) {
      throw StateError(base::str(file.path(), ": its metadata say ", in_file, " heads, but ", heads,
                                 " were given."));
    }
    heads = in_file;
  }
  if (heads == 0) {
    throw StateError(base::str(
        file.path(),
        ": how many heads this model of nanoGPT has is not in the file.\n  Say it "
        "once: lockstep checkpoint import ",
        file.path(), " model.safetensors --heads N, or write it as metadata {\"n_head\": \"N\"}."));
  }
  if (heads < 0 || width % heads != 0) {
    throw StateError(
        base::str(file.path(), ": ", heads, " heads do not divide a width of ", width, "."));
  }
  return heads;
}

}  // namespace

std::unique_ptr<Weights> open_nanogpt(const files::SafetensorsFile& file,
                                      const OpenOptions& options) {
  const std::string prefix = prefix_of(file);
  const std::string head = prefix.starts_with("_orig_mod.") ? "_orig_mod." : "";
  const auto name = [&](const std::string& ours) { return prefix + ours; };
  const auto& embedding = matrix(file, name("wte.weight"));
  const auto& attention = matrix(file, name("h.0.attn.c_attn.weight"));
  const int64_t width = embedding[1];
  if (attention[0] == width && attention[1] == 3 * width) {
    throw StateError(
        base::str(file.path(),
                  ": its linear weights are (in, out), as Hugging Face's are. Give the "
                  "folder with its config.json."));
  }
  WeightOrigin origin{
      .path = file.path(),
      .kind = "nanoGPT",
      .config = {},
      .vocab = embedding[0],
      .param_digest = {},
      .identity = {},
      .notes = {"nanoGPT computes GELU's exact form, Lockstep the tanh form: losses "
                "may differ in the fourth digit."}};
  auto& model = origin.config.model;
  model.width = width;
  model.heads = heads_of(file, options, width);
  model.context = matrix(file, name("wpe.weight"))[0];
  model.ffn = matrix(file, name("h.0.mlp.c_fc.weight"))[0];
  model.layers = 0;
  while (file.has(name(base::str("h.", model.layers, ".ln_1.weight")))) ++model.layers;
  model.bias = file.has(name("ln_f.bias"));
  guess_gpt2_tokenizer(
      origin, "Which tokenizer its ids are of is not known: nanoGPT's meta.pkl is not read.");
  set_vocab(origin);
  TensorTable table = gpt2_table(origin.config, origin.vocab, Linears::out_in, prefix, head);
  if (!model.bias) table = without_biases(std::move(table));
  std::unique_ptr<TensorSource> source = open_tensor_file(file.path());
  const std::string tied = head + "lm_head.weight";
  if (source->has(tied)) require_same_values(*source, tied, name("wte.weight"));
  return renamed_weights(
      std::move(origin), std::move(source), std::move(table),
      [&tied](const std::string& other) { return other == tied || other.ends_with(".attn.bias"); });
}

}  // namespace lockstep::checkpoints
