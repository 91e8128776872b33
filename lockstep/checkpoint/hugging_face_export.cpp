#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/hugging_face.h"
#include "lockstep/checkpoint/hugging_face_config.h"
#include "lockstep/checkpoint/tensor_source.h"
#include "lockstep/checkpoint/tensor_table.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::checkpoints {
namespace {
namespace fs = std::filesystem;

/// A folder beside the target that becomes it, or goes.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const std::string& target)
      : target_(target), path_(base::str(target, ".tmp-", ::getpid())) {
    std::error_code error;
    if (fs::exists(target, error) && !fs::is_empty(target, error)) {
      throw UsageError(base::str(target,
                                 " is there and not empty; a model is written to a folder "
                                 "of its own."));
    }
    fs::create_directories(path_, error);
    if (error) throw StateError(base::str("cannot make ", path_, ": ", error.message(), "."));
  }
  ~UnfinishedFolder() {
    std::error_code error;
    if (!done_) fs::remove_all(path_, error);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

  void commit() {
    // Onto an empty folder, too.
    if (std::rename(path_.c_str(), target_.c_str()) != 0) {
      throw StateError(
          base::str("cannot rename ", path_, " to ", target_, ": ", std::strerror(errno), "."));
    }
    done_ = true;
  }

 private:
  std::string target_;
  std::string path_;
  bool done_ = false;
};

/// One tensor after the other in the other program's layout and type.
class TensorWriter {
 public:
  TensorWriter(const Weights& weights, std::string dtype)
      : weights_(weights), dtype_(std::move(dtype)) {}

  files::TensorEntry entry(const TensorRow& row) {
    return {.name = row.name,
            .dtype = dtype_,
            .shape = row.shape,
            .data = nullptr,
            .bytes = row.numel() * float_bytes(dtype_),
            .bring = [this, &row] { return bring(row); }};
  }

 private:
  const void* bring(const TensorRow& row) {
    const int64_t numel = row.numel();
    const auto count = static_cast<size_t>(numel);
    values_.assign(count, 0.0f);
    const int64_t rows = row.rows(), columns = numel / rows;
    if (!row.logical.empty()) {
      weights_.read(row.logical, row.first_row * columns, numel, values_.data());
    }
    if (row.transposed) {
      turned_.resize(count);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          turned_[static_cast<size_t>(c * rows + r)] =
              values_[static_cast<size_t>(r * columns + c)];
        }
      }
      std::swap(values_, turned_);
    }
    if (dtype_ == "F32") return values_.data();
    halves_.resize(count);
    narrow(dtype_, values_.data(), numel, halves_.data());
    return halves_.data();
  }

  const Weights& weights_;
  std::string dtype_;
  std::vector<float> values_;
  std::vector<float> turned_;
  std::vector<uint16_t> halves_;
};

/// Rows [first, next) of a table for each file.
std::vector<std::pair<size_t, size_t>> cut_into_files(const TensorTable& table, int width,
                                                      int64_t file_bytes) {
  std::vector<std::pair<size_t, size_t>> cuts;
  int64_t bytes = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    const int64_t more = table[i].numel() * width;
    if (cuts.empty() || bytes + more > file_bytes) {
      cuts.emplace_back(i, i);
      bytes = 0;
    }
    cuts.back().second = i + 1;
    bytes += more;
  }
  return cuts;
}

std::string five_digits(size_t number) {
  const std::string digits = std::to_string(number);
  return digits.size() < 5 ? std::string(5 - digits.size(), '0') + digits : digits;
}

void write_json(const std::string& path, const nlohmann::json& json) {
  files::AtomicFile file(path);
  file.write(json.dump(2) + "\n");
  file.commit();
}

void write_tensors(const Weights& weights, const TensorTable& table,
                   const HuggingFaceOptions& options, const UnfinishedFolder& folder) {
  const int width = float_bytes(options.dtype);
  const auto cuts = cut_into_files(table, width, options.file_bytes);
  TensorWriter writer(weights, options.dtype);
  nlohmann::json map = nlohmann::json::object();
  int64_t total = 0;
  for (size_t f = 0; f < cuts.size(); ++f) {
    const std::string name = cuts.size() == 1 ? std::string("model.safetensors")
                                              : base::str("model-", five_digits(f + 1), "-of-",
                                                          five_digits(cuts.size()), ".safetensors");
    std::vector<files::TensorEntry> entries;
    for (size_t i = cuts[f].first; i < cuts[f].second; ++i) {
      entries.push_back(writer.entry(table[i]));
      map[table[i].name] = name;
      total += entries.back().bytes;
    }
    files::write_safetensors(folder.file(name), entries, {{"format", "pt"}});
  }
  if (cuts.size() > 1) {
    write_json(folder.file("model.safetensors.index.json"),
               {{"metadata", {{"total_size", total}}}, {"weight_map", map}});
  }
}

/// What of the table the model has no tensor for is zeros: GPT-2 has biases everywhere.
std::vector<std::string> fill_with_zeros(TensorTable& table, const Weights& weights) {
  bool any = false;
  for (TensorRow& row : table) {
    if (!row.logical.ends_with(".bias") || weights.has(row.logical)) continue;
    row.logical.clear();
    any = true;
  }
  if (!any) return {};
  return {
      "The model has no biases (model.bias = false), GPT-2 of Hugging Face has: they are zeros."};
}

std::string no_tokenizer(const WeightOrigin& origin) {
  if (!origin.knows_tokenizer)
    return "No tokenizer is written: which one its ids are of is not known.";
  if (origin.config.data.tokenizer == "bytes") {
    return "No tokenizer is written: ids are bytes of text, which Hugging Face has no files for.";
  }
  return base::str("No tokenizer is written: take the files of ", origin.config.data.tokenizer,
                   " (tokenizer.json) from where it is published.");
}

}  // namespace

std::vector<std::string> write_hugging_face(const Weights& weights, const std::string& folder,
                                            const HuggingFaceOptions& options) {
  if (float_bytes(options.dtype) == 0) {
    throw UsageError(
        base::str("the dtype of a Hugging Face model is F32, BF16 or F16, not ", options.dtype));
  }
  const WeightOrigin& origin = weights.origin();
  const nlohmann::json config = hugging_face_config(origin, options.dtype);
  TensorTable table = origin.config.model.family == "gpt2"
                          ? gpt2_table(origin.config, origin.vocab, Linears::in_out, "transformer.")
                          : llama_table(origin.config, origin.vocab);
  std::vector<std::string> notes = fill_with_zeros(table, weights);
  UnfinishedFolder unfinished(folder);
  write_tensors(weights, table, options, unfinished);
  write_json(unfinished.file("generation_config.json"), hugging_face_generation_config(origin));
  write_json(unfinished.file("config.json"), config);
  unfinished.commit();
  notes.push_back(no_tokenizer(origin));
  return notes;
}

}  // namespace lockstep::checkpoints
