#include "lockstep/checkpoint/llmc.h"

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/gpt2_tokenizer.h"
#include "lockstep/checkpoint/renamed_weights.h"
#include "lockstep/files/mapped_file.h"

namespace lockstep::checkpoints {
namespace {

constexpr int32_t kMagic = 20240326;
constexpr int64_t kHeaderBytes = 256 * 4;

struct Header {
  int32_t magic, version, context, vocab, layers, heads, width, padded_vocab;
};

/// The kinds of tensors in the order of the file.
constexpr std::array kBlockKinds = {"ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
                                    "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                                    "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
                                    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

class LlmcSource final : public TensorSource {
 public:
  LlmcSource(std::unique_ptr<files::MappedFile> file, const Header& header,
             const TensorTable& table)
      : file_(std::move(file)), dtype_(header.version == 3 ? "F32" : "BF16") {
    for (const TensorRow& row : table) {
      tensors_.emplace(row.name, Tensor{dtype_, row.shape});
      elements_.emplace(row.name, row.numel());
    }
    int64_t end = kHeaderBytes;
    const auto place = [&](const std::string& name, int64_t padding = 0) {
      begins_[name] = end;
      end += (elements_.at(name) + padding) * float_bytes(dtype_);
    };
    place("wte.weight", int64_t{header.padded_vocab - header.vocab} * header.width);
    place("wpe.weight");
    for (const char* const kind : kBlockKinds) {
      for (int32_t layer = 0; layer < header.layers; ++layer) {
        place(base::str("h.", layer, ".", kind));
      }
    }
    place("ln_f.weight");
    place("ln_f.bias");
    if (end != file_->size()) {
      throw StateError(base::str(path(), ": its header makes a file of ", end, " bytes, it has ",
                                 file_->size(), "."));
    }
  }

  const std::string& path() const override { return file_->path(); }
  const std::map<std::string, Tensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    if (file_->was_cut()) {
      throw StateError(path() + " was cut short while it was being read.");
    }
    const int width = float_bytes(dtype_);
    const int64_t from = begins_.at(name) + first * width;
    widen(dtype_, file_->data() + from, count, out);
    file_->release(from, count * width);
  }

 private:
  std::unique_ptr<files::MappedFile> file_;
  std::string dtype_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, int64_t> elements_;
  std::map<std::string, int64_t> begins_;  // bytes from the start of the file
};

void check(const std::string& path, const Header& header) {
  if (header.version != 3 && header.version != 5) {
    throw StateError(base::str(path, ": a model of llm.c of version ", header.version,
                               "; 3 (fp32) and 5 (bf16) are read."));
  }
  constexpr int32_t kMost = 1 << 24;
  const std::pair<const char*, int32_t> sizes[] = {{"the context", header.context},
                                                   {"the vocabulary", header.vocab},
                                                   {"the layers", header.layers},
                                                   {"the heads", header.heads},
                                                   {"the width", header.width}};
  for (const auto& [what, size] : sizes) {
    if (size > 0 && size <= kMost) continue;
    throw StateError(base::str(path, ": its header gives ", what, " as ", size, "."));
  }
  if (header.padded_vocab < header.vocab || header.padded_vocab > kMost ||
      header.width % header.heads != 0) {
    throw StateError(base::str(path, ": its header does not fit together: vocabulary ",
                               header.vocab, " padded to ", header.padded_vocab, ", width ",
                               header.width, ", heads ", header.heads, "."));
  }
}

}  // namespace

bool is_llmc_model(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  int32_t first = 0;
  in.read(reinterpret_cast<char*>(&first), sizeof first);
  return in && first == kMagic;
}

std::unique_ptr<Weights> open_llmc(const std::string& path) {
  std::unique_ptr<files::MappedFile> file;
  try {
    file = std::make_unique<files::MappedFile>(path);
  } catch (const std::system_error& error) {
    throw StateError(base::str("cannot read ", path, ": ", error.code().message(), "."));
  }
  if (file->size() < kHeaderBytes) {
    throw StateError(
        base::str(path, ": it has ", file->size(), " bytes, its header alone ", kHeaderBytes, "."));
  }
  Header header{};
  std::memcpy(&header, file->data(), sizeof header);
  check(path, header);
  WeightOrigin origin{.path = path,
                      .kind = header.version == 3 ? "llm.c, fp32" : "llm.c, bf16",
                      .config = {},
                      .vocab = header.vocab,
                      .param_digest = {},
                      .identity = {},
                      .notes = {}};
  auto& model = origin.config.model;
  model.context = header.context;
  model.layers = header.layers;
  model.heads = header.heads;
  model.width = header.width;
  guess_gpt2_tokenizer(origin, "Which tokenizer its ids are of is not known.");
  set_vocab(origin);
  // A layer has more than a hundred bytes: no header makes a table larger than the file.
  if (header.layers > file->size() / 100) {
    throw StateError(
        base::str(path, ": ", file->size(), " bytes are too few for ", header.layers, " layers."));
  }
  TensorTable table = gpt2_table(origin.config, header.vocab, Linears::out_in, "");
  auto source = std::make_unique<LlmcSource>(std::move(file), header, table);
  return renamed_weights(std::move(origin), std::move(source), std::move(table),
                         [](const std::string&) { return false; });
}

}  // namespace lockstep::checkpoints
