#include "lockstep/checkpoint/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/half.h"
#include "lockstep/base/shallow_json.h"
#include "lockstep/base/str.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::checkpoints {
namespace {
namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr int64_t kPartElements = int64_t{1} << 18;

template <class Half>
void widen_halves(const void* from, int64_t count, float* out) {
  const auto* values = static_cast<const char*>(from);
  for (int64_t i = 0; i < count; ++i) {
    Half half{};
    std::memcpy(&half, values + i * 2, 2);
    out[i] = base::widen(half);
  }
}

template <class Half>
void narrow_to(const float* from, int64_t count, void* into) {
  for (int64_t i = 0; i < count; ++i) base::narrow(from[i], static_cast<Half*>(into)[i]);
}

class SafetensorsSource final : public TensorSource {
 public:
  SafetensorsSource(std::string path, std::vector<files::SafetensorsFile> files)
      : path_(std::move(path)), files_(std::move(files)) {
    for (size_t f = 0; f < files_.size(); ++f) {
      for (const std::string& name : files_[f].names()) {
        const auto& info = files_[f].info(name);
        if (!tensors_.emplace(name, Tensor{info.dtype, info.shape}).second) {
          throw StateError(base::str(path_, ": \"", name, "\" lies in ",
                                     files_[file_of_.at(name)].path(), " and in ", files_[f].path(),
                                     "."));
        }
        file_of_.emplace(name, f);
      }
    }
  }

  const std::string& path() const override { return path_; }
  const std::map<std::string, Tensor>& tensors() const override { return tensors_; }

  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    const files::SafetensorsFile& file = files_[file_of_.at(name)];
    const std::string& dtype = file.info(name).dtype;
    const int width = float_bytes(dtype);
    LOCKSTEP_ASSERT(width > 0, "who reads a tensor has seen its type");
    if (width == 4) {
      file.read_part(name, first * 4, count * 4, out);
      return;
    }
    std::vector<uint16_t> part(static_cast<size_t>(std::min(count, kPartElements)));
    for (int64_t done = 0; done < count; done += kPartElements) {
      const int64_t now = std::min(count - done, kPartElements);
      file.read_part(name, (first + done) * width, now * width, part.data());
      widen(dtype, part.data(), now, out + done);
    }
  }

 private:
  std::string path_;
  std::vector<files::SafetensorsFile> files_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, size_t> file_of_;
};

/// Names of tensors and the file that each lies in.
std::map<std::string, std::string> read_index(const std::string& path) {
  std::map<std::string, std::string> map;
  try {
    const files::MappedFile file(path);
    const auto json = nlohmann::json::parse(base::shallow_json(file.text()));
    for (const auto& [name, value] : json.at("weight_map").items()) {
      map.emplace(name, value.get<std::string>());
    }
  } catch (const std::system_error& error) {
    throw StateError(base::str("cannot read ", path, ": ", error.code().message(), "."));
  } catch (const nlohmann::json::exception& error) {
    throw StateError(base::str(path, ": it cannot be read: ", error.what()));
  }
  for (const auto& [name, file] : map) {
    if (file.empty() || file.find('/') != std::string::npos) {
      throw StateError(base::str(path, ": \"", name, "\" would lie in \"", file,
                                 "\", which is no file of this folder."));
    }
  }
  return map;
}

}  // namespace

int float_bytes(const std::string& dtype) {
  if (dtype == "F32") return 4;
  return dtype == "F16" || dtype == "BF16" ? 2 : 0;
}

void widen(const std::string& dtype, const void* from, int64_t count, float* out) {
  if (dtype == "F16") return widen_halves<base::Float16>(from, count, out);
  if (dtype == "BF16") return widen_halves<base::BFloat16>(from, count, out);
  std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
}

void narrow(const std::string& dtype, const float* from, int64_t count, void* into) {
  if (dtype == "F16") return narrow_to<base::Float16>(from, count, into);
  if (dtype == "BF16") return narrow_to<base::BFloat16>(from, count, into);
  std::memcpy(into, from, static_cast<size_t>(count) * sizeof(float));
}

std::unique_ptr<TensorSource> open_tensor_file(const std::string& path) {
  std::vector<files::SafetensorsFile> files;
  files.push_back(files::SafetensorsFile::open(path));
  return std::make_unique<SafetensorsSource>(path, std::move(files));
}

std::unique_ptr<TensorSource> open_tensor_folder(const std::string& folder) {
  std::error_code error;
  const std::string one = (fs::path(folder) / kOneFile).string();
  if (fs::is_regular_file(one, error)) {
    std::vector<files::SafetensorsFile> files;
    files.push_back(files::SafetensorsFile::open(one));
    return std::make_unique<SafetensorsSource>(folder, std::move(files));
  }
  const std::string index = (fs::path(folder) / kIndex).string();
  if (!fs::is_regular_file(index, error)) {
    throw StateError(
        base::str(folder, ": it has neither ", kOneFile, " nor ", kIndex, ": no weights."));
  }
  const std::map<std::string, std::string> map = read_index(index);
  std::vector<std::string> names;
  for (const auto& [tensor, file] : map) names.push_back(file);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<files::SafetensorsFile> files;
  for (const std::string& name : names) {
    files.push_back(files::SafetensorsFile::open((fs::path(folder) / name).string()));
  }
  for (const auto& [tensor, file] : map) {
    const auto at =
        static_cast<size_t>(std::lower_bound(names.begin(), names.end(), file) - names.begin());
    if (!files[at].has(tensor)) {
      throw StateError(
          base::str(index, ": \"", tensor, "\" should lie in ", file, ", which does not hold it."));
    }
  }
  return std::make_unique<SafetensorsSource>(folder, std::move(files));
}

}  // namespace lockstep::checkpoints
