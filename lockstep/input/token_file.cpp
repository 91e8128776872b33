#include "lockstep/input/token_file.h"

#include <cstring>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/mapped_file.h"

namespace lockstep::input {
namespace {

/// The data that an index is given for.
std::string data_path(const std::string& path) {
  const auto data = std::filesystem::path(path).replace_extension(".bin");
  std::error_code error;
  return path.ends_with(".idx") && std::filesystem::exists(data, error) ? data.string() : path;
}

/// Tokens lie at any address, so they are copied one by one.
template <class Id>
void widen(const unsigned char* from, int64_t count, int64_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    Id id{};
    std::memcpy(&id, from + static_cast<int64_t>(sizeof id) * i, sizeof id);
    out[i] = id;
  }
}

void widen(files::TokenType type, const unsigned char* from, int64_t count, int64_t* out) {
  switch (type) {
    case files::TokenType::u8:
      return widen<uint8_t>(from, count, out);
    case files::TokenType::i8:
      return widen<int8_t>(from, count, out);
    case files::TokenType::i16:
      return widen<int16_t>(from, count, out);
    case files::TokenType::i32:
      return widen<int32_t>(from, count, out);
    case files::TokenType::i64:
      return widen<int64_t>(from, count, out);
    case files::TokenType::u16:
      return widen<uint16_t>(from, count, out);
    case files::TokenType::u32:
      return widen<uint32_t>(from, count, out);
  }
}

}  // namespace

struct TokenFile::Impl {
  explicit Impl(const std::string& path) : file(path), layout(files::token_layout(file)) {}

  files::MappedFile file;
  files::TokenLayout layout;
};

TokenFile::~TokenFile() = default;

std::shared_ptr<const TokenFile> TokenFile::open(const std::string& path) {
  std::shared_ptr<TokenFile> opened(new TokenFile);
  try {
    opened->impl_ = std::make_unique<Impl>(data_path(path));
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) {
      throw EnvironmentError("there is no data file " + path +
                             ".\n  A text to begin with: lockstep data prepare austen");
    }
    throw EnvironmentError(
        base::str("cannot read the data file ", path, ": ", error.code().message(), "."));
  }
  return opened;
}

const std::string& TokenFile::path() const { return impl_->file.path(); }

int64_t TokenFile::size() const { return impl_->layout.tokens; }

const files::TokenLayout& TokenFile::layout() const { return impl_->layout; }

void TokenFile::read(int64_t first, int64_t count, int64_t* out) const {
  if (first < 0 || count < 0 || count > size() || first > size() - count) {
    throw UsageError(base::str(count, " tokens from number ", first, " on were asked of ", path(),
                               ", which has ", size(), "."));
  }
  if (impl_->file.was_cut()) {
    throw EnvironmentError(path() +
                           " was cut short while it was in use.\n"
                           "  To replace a data file, write the new one beside it and rename.");
  }
  const auto& layout = impl_->layout;
  widen(layout.type, impl_->file.data() + layout.offset + files::bytes_of(layout.type) * first,
        count, out);
}

}  // namespace lockstep::input
