#include "lockstep/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/detail/safetensors_header.h"
#include "lockstep/files/detail/shown.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/other_formats.h"

namespace lockstep::files {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kCopyBytes = 16 * MiB;

constexpr std::pair<const char*, int> kDtypeBits[] = {
    {"BOOL", 8},        {"U8", 8},         {"I8", 8},   {"I16", 16},    {"U16", 16},
    {"F16", 16},        {"BF16", 16},      {"I32", 32}, {"U32", 32},    {"F32", 32},
    {"F64", 64},        {"I64", 64},       {"U64", 64}, {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8},     {"F8_E8M0", 8},    {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw UsageError(
        "a name or metadata text for a safetensors file is no UTF-8: " +
        nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
}

void check_entries(const std::vector<TensorEntry>& tensors) {
  std::unordered_set<std::string> seen;
  for (const auto& tensor : tensors) {
    if (tensor.name == "__metadata__" || !seen.insert(tensor.name).second) {
      throw UsageError(base::str("two entries of a safetensors file are named \"", tensor.name,
                                 "\" (\"__metadata__\" is taken)."));
    }
    const int bits = safetensors_dtype_bits(tensor.dtype);
    if (bits == 0) {
      throw UsageError(base::str("tensor \"", tensor.name, "\": safetensors has no dtype \"",
                                 tensor.dtype, "\"."));
    }
    const int64_t bytes = detail::tensor_bytes(bits, tensor.shape);
    if (bytes < 0 || bytes != tensor.bytes) {
      throw UsageError(base::str("tensor \"", tensor.name, "\": ", tensor.bytes,
                                 " bytes given, but shape and dtype need ", bytes, "."));
    }
  }
}

std::string header_text(const std::vector<const TensorEntry*>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto separate = [&text] {
    if (text.back() != '{') text += ',';
  };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      separate();
      text += quoted(key) + ":" + quoted(value);
    }
    text += '}';
  }
  int64_t offset = 0;
  for (const auto* tensor : tensors) {
    separate();
    text += quoted(tensor->name) + ":{\"dtype\":\"" + tensor->dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor->shape.size(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(tensor->shape[i]);
    }
    text += "],\"data_offsets\":[" + std::to_string(offset) + ",";
    offset += tensor->bytes;
    text += std::to_string(offset) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8
  return text;
}

}  // namespace

int safetensors_dtype_bits(const std::string& dtype) {
  for (const auto& [name, bits] : kDtypeBits) {
    if (dtype == name) return bits;
  }
  return 0;
}

void write_safetensors(const std::string& path, const std::vector<TensorEntry>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_entries(tensors);
  std::vector<const TensorEntry*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return safetensors_dtype_bits(a->dtype) > safetensors_dtype_bits(b->dtype);
  });
  const std::string header = header_text(order, metadata);
  if (static_cast<int64_t>(header.size()) > kMaxHeaderBytes) {
    throw UsageError(base::str(path, ": the header would have ", header.size(),
                               " bytes; safetensors allows ", kMaxHeaderBytes, "."));
  }
  AtomicFile file(path);
  const uint64_t header_bytes = header.size();
  int64_t bytes = static_cast<int64_t>(sizeof header_bytes + header.size());
  for (const auto& tensor : tensors) bytes += tensor.bytes;
  file.expect(bytes);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(header);
  for (const auto* tensor : order) {
    file.write(tensor->bring ? tensor->bring() : tensor->data, tensor->bytes);
  }
  file.commit();
}

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& path) : file(path) {}

  const Info* find(const std::string& name) const {
    const auto& tensors = header.tensors;
    const auto found = std::lower_bound(
        header.by_name.begin(), header.by_name.end(), name,
        [&](uint32_t at, const std::string& wanted) { return tensors[at].first < wanted; });
    if (found == header.by_name.end() || tensors[*found].first != name) return nullptr;
    return &tensors[*found].second;
  }

  /// Shown; empty if none is near. A file may list a million names, each a page long: of those that
  /// could be meant the first thousand are tried.
  std::string nearest(const std::string& name) const {
    std::vector<std::string> candidates;
    for (const auto& [other, info] : header.tensors) {
      if (other.size() <= 2 * name.size() && candidates.size() < 1000) candidates.push_back(other);
    }
    const std::string near = base::nearest(name, candidates);
    return near.empty() ? near : detail::shown(near);
  }

  /// `from` and `bytes` lie within the file as it was mapped.
  void copy(int64_t from, int64_t bytes, void* out) const {
    for (int64_t done = 0; done < bytes; done += kCopyBytes) {
      if (file.was_cut()) {
        throw StateError(file.path() + " was cut short while it was being read.");
      }
      const int64_t part = std::min(kCopyBytes, bytes - done);
      std::memcpy(static_cast<char*>(out) + done, file.data() + from + done,
                  static_cast<size_t>(part));
      file.release(from + done, part);
    }
  }

  MappedFile file;
  detail::SafetensorsHeader header;
  int64_t data_begin = 0;
};

SafetensorsFile::SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile opened;
  try {
    opened.impl_ = std::make_unique<Impl>(path);
    auto& impl = *opened.impl_;
    const int64_t size = impl.file.size();
    if (const std::string code = code_carrying_format(impl.file.text()); !code.empty()) {
      throw StateError(base::str("it is ", code, "; nothing in it was run, and nothing will be"));
    }
    if (size < 8) {
      throw StateError(base::str("it has ", size, " bytes; even the length of the header needs 8"));
    }
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, impl.file.data(), sizeof header_bytes);
    if (header_bytes > static_cast<uint64_t>(kMaxHeaderBytes)) {
      throw StateError(base::str("its header would have ", header_bytes, " bytes, more than the ",
                                 kMaxHeaderBytes, " that the format allows"));
    }
    if (header_bytes > static_cast<uint64_t>(size - 8)) {
      throw StateError(base::str("its header would have ", header_bytes,
                                 " bytes, but the file has ", size, ": it is cut short"));
    }
    impl.data_begin = 8 + static_cast<int64_t>(header_bytes);
    impl.header = detail::parse_safetensors_header(impl.file.text().substr(8, header_bytes),
                                                   size - impl.data_begin);
  } catch (const std::system_error& error) {
    throw StateError(base::str("cannot read ", path, ": ", error.code().message(), "."));
  } catch (const StateError& error) {
    throw StateError(base::str(path, " is no whole safetensors file: ", error.what(), "."));
  }
  return opened;
}

const std::string& SafetensorsFile::path() const { return impl_->file.path(); }

std::string SafetensorsFile::header_bytes() const {
  std::string bytes(static_cast<size_t>(impl_->data_begin), '\0');
  impl_->copy(0, impl_->data_begin, bytes.data());
  return bytes;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->header.metadata;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : impl_->header.tensors) names.push_back(name);
  return names;
}

bool SafetensorsFile::has(const std::string& name) const { return impl_->find(name) != nullptr; }

const SafetensorsFile::Info& SafetensorsFile::info(const std::string& name) const {
  if (const Info* found = impl_->find(name)) return *found;
  const std::string near = impl_->nearest(name);
  throw StateError(base::str(impl_->file.path(), " has no tensor ", detail::shown(name), ".",
                             near.empty() ? "" : " The nearest name is " + near + "."));
}

void SafetensorsFile::read(const std::string& name, void* out, int64_t bytes) const {
  const Info& tensor = info(name);
  if (bytes != tensor.bytes) {
    throw StateError(base::str(impl_->file.path(), ": tensor ", detail::shown(name), " has ",
                               tensor.bytes, " bytes, but ", bytes, " were expected."));
  }
  impl_->copy(impl_->data_begin + tensor.offset, bytes, out);
}

void SafetensorsFile::read_part(const std::string& name, int64_t first_byte, int64_t bytes,
                                void* out) const {
  const Info& tensor = info(name);
  if (first_byte < 0 || bytes < 0 || bytes > tensor.bytes - first_byte) {  // no sum to overflow
    throw StateError(base::str(impl_->file.path(), ": tensor ", detail::shown(name), " has ",
                               tensor.bytes, " bytes, but ", bytes, " from byte ", first_byte,
                               " on were asked for."));
  }
  impl_->copy(impl_->data_begin + tensor.offset + first_byte, bytes, out);
}

}  // namespace lockstep::files
