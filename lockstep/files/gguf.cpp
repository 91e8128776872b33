#include "lockstep/files/gguf.h"

#include <algorithm>
#include <set>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/detail/gguf_types.h"

namespace lockstep::files {
namespace {

using detail::GgufType;

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

int dtype_of(const GgufTensor& tensor) {
  const auto& dtypes = detail::kGgufDtypes;
  const auto found = std::find_if(dtypes.begin(), dtypes.end(),
                                  [&](const auto& dtype) { return dtype.name == tensor.dtype; });
  if (found == dtypes.end()) {
    throw UsageError(base::str("tensor \"", tensor.name, "\": a GGUF file of Lockstep holds F32 ",
                               "or F16, not \"", tensor.dtype, "\"."));
  }
  return static_cast<int>(found - dtypes.begin());
}

int64_t bytes_of(const GgufTensor& tensor) {
  int64_t bytes = detail::kGgufDtypes[static_cast<size_t>(dtype_of(tensor))].bytes;
  for (const int64_t size : tensor.shape) {
    if (size < 1 || __builtin_mul_overflow(bytes, size, &bytes)) {
      throw UsageError(base::str("tensor \"", tensor.name, "\" has an impossible shape."));
    }
  }
  return bytes;
}

/// The header as it comes to be.
class Header {
 public:
  template <class Number>
  void number(Number value) {
    static_assert(std::is_arithmetic_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view text) {
    number(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void value(const GgufValue& value) {
    std::visit([this](const auto& one) { typed(one); }, value);
  }
  std::string& bytes() { return bytes_; }

 private:
  void type(GgufType type) { number(static_cast<uint32_t>(type)); }
  static GgufType type_of(uint32_t) { return GgufType::u32; }
  static GgufType type_of(int32_t) { return GgufType::i32; }
  static GgufType type_of(float) { return GgufType::f32; }
  static GgufType type_of(bool) { return GgufType::boolean; }
  static GgufType type_of(const std::string&) { return GgufType::string; }

  template <class One>
  void plain(const One& one) {
    if constexpr (std::is_same_v<One, std::string>) {
      text(one);
    } else {
      number(one);
    }
  }
  template <class One>
  void typed(const One& one) {
    type(type_of(one));
    plain(one);
  }
  template <class One>
  void typed(const std::vector<One>& list) {
    type(GgufType::array);
    type(type_of(One{}));
    number(static_cast<uint64_t>(list.size()));
    for (const One& one : list) plain(one);
  }

  std::string bytes_;
};

void check_names(const GgufKeys& keys, const std::vector<GgufTensor>& tensors) {
  std::set<std::string_view> seen;
  for (const auto& [name, value] : keys) {
    if (name.empty() || !seen.insert(name).second) {
      throw UsageError(base::str("two keys of a GGUF file are named \"", name, "\"."));
    }
  }
  seen.clear();
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name.empty() || tensor.name.size() > detail::kGgufMostNameBytes ||
        !seen.insert(tensor.name).second) {
      throw UsageError(base::str("\"", tensor.name, "\" is no name for a tensor of a GGUF file: ",
                                 "each has one of its own, of 1 to ", detail::kGgufMostNameBytes,
                                 " bytes."));
    }
    if (tensor.shape.empty() || std::ssize(tensor.shape) > detail::kGgufMostDims) {
      throw UsageError(base::str("tensor \"", tensor.name, "\" has ", tensor.shape.size(),
                                 " dims; GGUF has 1 to ", detail::kGgufMostDims, "."));
    }
  }
}

}  // namespace

void write_gguf(const std::string& path, const GgufKeys& keys,
                const std::vector<GgufTensor>& tensors) {
  check_names(keys, tensors);
  Header header;
  header.bytes() += detail::kGgufMagic;
  header.number(detail::kGgufVersion);
  header.number(static_cast<uint64_t>(tensors.size()));
  header.number(static_cast<uint64_t>(keys.size()));
  for (const auto& [name, value] : keys) {
    header.text(name);
    header.value(value);
  }
  int64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    header.text(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      header.number(static_cast<uint64_t>(*size));
    }
    header.number(static_cast<uint32_t>(dtype_of(tensor)));
    header.number(static_cast<uint64_t>(offset));
    offset += aligned(bytes_of(tensor));
  }
  std::string& bytes = header.bytes();
  bytes.resize(static_cast<size_t>(aligned(std::ssize(bytes))), '\0');

  AtomicFile file(path);
  file.write(bytes);
  for (const GgufTensor& tensor : tensors) {
    const int64_t size = bytes_of(tensor);
    file.write(tensor.bring(), size);
    file.write(std::string(static_cast<size_t>(aligned(size) - size), '\0'));
  }
  file.commit();
}

}  // namespace lockstep::files
