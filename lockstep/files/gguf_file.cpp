#include "lockstep/files/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/detail/gguf_types.h"
#include "lockstep/files/detail/shown.h"
#include "lockstep/files/detail/utf8.h"
#include "lockstep/files/mapped_file.h"

namespace lockstep::files {
namespace {

using detail::GgufType;
using detail::shown;

constexpr int64_t kMostHeaderBytes = 100'000'000;

[[noreturn]] void bad(const std::string& reason) { throw StateError(reason); }

/// Takes a header apart from the front. No length that it states is believed before as many bytes
/// are there.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  int64_t at() const { return at_; }
  int64_t left() const { return std::ssize(bytes_) - at_; }

  std::string_view take(uint64_t bytes) {
    if (bytes > static_cast<uint64_t>(left())) {
      bad(base::str("it is cut short, or a length in it is wrong: ", bytes, " bytes from byte ",
                    at_, " on, where ", left(), " are"));
    }
    const auto taken = bytes_.substr(static_cast<size_t>(at_), bytes);
    at_ += static_cast<int64_t>(bytes);
    return taken;
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<uint64_t>())); }
  /// A count of things of at least `least` bytes each.
  uint64_t count(uint64_t least, const char* what) {
    const auto count = number<uint64_t>();
    if (count > static_cast<uint64_t>(left()) / least) {
      bad(base::str("it states ", count, " ", what, ", but has ", left(), " bytes for them"));
    }
    return count;
  }

 private:
  std::string_view bytes_;
  int64_t at_ = 0;
};

std::string name_in(Cursor& cursor, const char* what) {
  std::string name = cursor.text();
  if (name.empty() || detail::valid_utf8_bytes(name) != name.size()) {
    bad(base::str("it has a ", what,
                  " without a name, or with one that is no UTF-8: ", shown(name)));
  }
  return name;
}

template <class One>
One plain(Cursor& cursor) {
  if constexpr (std::is_same_v<One, std::string>) {
    return cursor.text();
  } else {
    return cursor.number<One>();
  }
}

template <class One>
std::vector<One> list_in(Cursor& cursor) {
  constexpr bool kText = std::is_same_v<One, std::string>;
  const uint64_t count = cursor.count(kText ? sizeof(uint64_t) : sizeof(One), "values of a list");
  std::vector<One> list;
  list.reserve(count);
  for (uint64_t i = 0; i < count; ++i) list.push_back(plain<One>(cursor));
  return list;
}

[[noreturn]] void unknown_type(const std::string& key, uint32_t type) {
  bad(base::str("key ", shown(key), " has values of type ", type,
                ", which Lockstep does not read"));
}

GgufValue value_in(Cursor& cursor, const std::string& key) {
  const auto type = cursor.number<uint32_t>();
  switch (static_cast<GgufType>(type)) {
    case GgufType::u32:
      return cursor.number<uint32_t>();
    case GgufType::i32:
      return cursor.number<int32_t>();
    case GgufType::f32:
      return cursor.number<float>();
    case GgufType::boolean: {
      const auto byte = cursor.number<uint8_t>();
      if (byte > 1) bad(base::str("key ", shown(key), " is neither true nor false: ", byte));
      return byte == 1;
    }
    case GgufType::string:
      return cursor.text();
    case GgufType::array: {
      const auto element = cursor.number<uint32_t>();
      switch (static_cast<GgufType>(element)) {
        case GgufType::i32:
          return list_in<int32_t>(cursor);
        case GgufType::f32:
          return list_in<float>(cursor);
        case GgufType::string:
          return list_in<std::string>(cursor);
        default:
          unknown_type(key, element);
      }
    }
  }
  unknown_type(key, type);
}

GgufFile::Info tensor_in(Cursor& cursor) {
  GgufFile::Info info{.name = name_in(cursor, "tensor"), .dtype = {}, .shape = {}};
  const auto rank = cursor.number<uint32_t>();
  if (rank < 1 || rank > detail::kGgufMostDims) {
    bad(base::str("tensor ", shown(info.name), " has ", rank, " dims"));
  }
  for (uint32_t i = 0; i < rank; ++i) {
    info.shape.insert(info.shape.begin(), static_cast<int64_t>(cursor.number<uint64_t>()));
  }
  const auto type = cursor.number<uint32_t>();
  if (type >= detail::kGgufDtypes.size()) {
    bad(base::str("tensor ", shown(info.name), " is of type ", type,
                  "; Lockstep reads F32 (0) and F16 (1)"));
  }
  info.dtype = detail::kGgufDtypes[type].name;
  info.bytes = detail::kGgufDtypes[type].bytes;
  for (const int64_t size : info.shape) {
    if (size < 1 || __builtin_mul_overflow(info.bytes, size, &info.bytes)) {
      bad(base::str("tensor ", shown(info.name), " has an impossible shape"));
    }
  }
  info.offset = static_cast<int64_t>(cursor.number<uint64_t>());
  return info;
}

void require_unlike(const std::string& name, std::set<std::string>& seen) {
  if (!seen.insert(name).second) bad(base::str(shown(name), " is listed twice"));
}

/// Bytes of `bytes` and what fills them up; the sum cannot overflow unseen.
int64_t padded(int64_t bytes, int64_t alignment) {
  int64_t sum = 0;
  if (__builtin_add_overflow(bytes, alignment - 1, &sum)) bad("a tensor is too large");
  return sum / alignment * alignment;
}

}  // namespace

struct GgufFile::Impl {
  explicit Impl(const std::string& path) : file(path) {}
  void parse();
  void check_data(int64_t alignment, int64_t header_bytes);

  MappedFile file;
  GgufKeys keys;
  std::vector<Info> tensors;
  int64_t data_begin = 0;
};

void GgufFile::Impl::parse() {
  if (!file.text().starts_with(detail::kGgufMagic)) bad("it does not begin with GGUF");
  Cursor cursor(file.text().substr(0, kMostHeaderBytes));
  cursor.take(detail::kGgufMagic.size());
  if (const auto version = cursor.number<uint32_t>(); version != detail::kGgufVersion) {
    bad(base::str("it is of version ", version, "; Lockstep reads ", detail::kGgufVersion));
  }
  const uint64_t tensor_count = cursor.count(8 + 1 + 4 + 8 + 4 + 8, "tensors");
  const uint64_t key_count = cursor.count(8 + 1 + 4 + 1, "keys");
  std::set<std::string> seen;
  for (uint64_t i = 0; i < key_count; ++i) {
    std::string name = name_in(cursor, "key");
    require_unlike(name, seen);
    keys.emplace_back(name, value_in(cursor, name));
  }
  int64_t alignment = kGgufAlignment;
  for (const auto& [name, value] : keys) {
    if (name != "general.alignment") continue;
    const auto* number = std::get_if<uint32_t>(&value);
    if (number == nullptr || *number == 0 || *number % 8 != 0) bad("its alignment is impossible");
    alignment = *number;
  }
  seen.clear();
  for (uint64_t i = 0; i < tensor_count; ++i) {
    tensors.push_back(tensor_in(cursor));
    require_unlike(tensors.back().name, seen);
  }
  check_data(alignment, cursor.at());
}

void GgufFile::Impl::check_data(int64_t alignment, int64_t header_bytes) {
  data_begin = std::min(padded(header_bytes, alignment), file.size());
  int64_t next = 0;
  for (const Info& tensor : tensors) {
    if (tensor.offset != next) {
      bad(base::str("tensor ", shown(tensor.name), " begins at byte ", tensor.offset,
                    " of the data, where ", next, " is next"));
    }
    // The last tensor's filling may be missing: other programs leave it out.
    if (tensor.bytes > file.size() - data_begin - tensor.offset) {
      bad(base::str("tensor ", shown(tensor.name), " ends beyond the file, which is cut short"));
    }
    next = tensor.offset + padded(tensor.bytes, alignment);
  }
  const int64_t data_bytes = file.size() - data_begin;
  if (data_bytes > next) bad(base::str(data_bytes - next, " bytes at its end belong to no tensor"));
}

GgufFile::GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

GgufFile GgufFile::open(const std::string& path) {
  GgufFile opened;
  try {
    opened.impl_ = std::make_unique<Impl>(path);
    opened.impl_->parse();
  } catch (const std::system_error& error) {
    throw StateError(base::str("cannot read ", path, ": ", error.code().message(), "."));
  } catch (const StateError& error) {
    throw StateError(base::str(path, " is no GGUF file that can be read: ", error.what(), "."));
  }
  return opened;
}

const GgufKeys& GgufFile::keys() const { return impl_->keys; }

const GgufValue* GgufFile::find(const std::string& key) const {
  for (const auto& [name, value] : impl_->keys) {
    if (name == key) return &value;
  }
  return nullptr;
}

const std::vector<GgufFile::Info>& GgufFile::tensors() const { return impl_->tensors; }

void GgufFile::read(const std::string& name, void* out, int64_t bytes) const {
  const auto& list = impl_->tensors;
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Info& info) { return info.name == name; });
  if (found == list.end()) {
    throw StateError(base::str(impl_->file.path(), " has no tensor ", shown(name), "."));
  }
  if (found->bytes != bytes) {
    throw StateError(base::str(impl_->file.path(), ": tensor ", shown(name), " has ", found->bytes,
                               " bytes, but ", bytes, " were expected."));
  }
  if (impl_->file.was_cut()) {
    throw StateError(impl_->file.path() + " was cut short while it was being read.");
  }
  std::memcpy(out, impl_->file.data() + impl_->data_begin + found->offset,
              static_cast<size_t>(bytes));
}

}  // namespace lockstep::files
