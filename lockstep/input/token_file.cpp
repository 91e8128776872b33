#include "lockstep/input/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/input/detail/other_formats.h"

namespace lockstep::input {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr int64_t kScanTokens = 64 * KiB;

}  // namespace

struct TokenFile::Impl {
  explicit Impl(const std::string& path) : file(path) {}

  void require_whole() const {
    if (file.was_cut()) {
      throw EnvironmentError(file.path() +
                             " was cut short while it was in use.\n"
                             "  To replace a data file, write the new one beside it and rename.");
    }
  }

  /// Calls visit(first, tokens) for pieces of the file in order, until it returns false.
  template <class Visit>
  void scan(Visit visit) const {
    const int64_t size = file.size() / 2;
    std::vector<uint16_t> piece;
    for (int64_t first = 0; first < size; first += kScanTokens) {
      require_whole();
      piece.resize(static_cast<size_t>(std::min(kScanTokens, size - first)));
      std::memcpy(piece.data(), file.data() + 2 * first, 2 * piece.size());
      if (!visit(first, piece)) return;
    }
  }

  files::MappedFile file;
};

TokenFile::~TokenFile() = default;

std::shared_ptr<const TokenFile> TokenFile::open(const std::string& path) {
  std::shared_ptr<TokenFile> opened(new TokenFile);
  try {
    opened->impl_ = std::make_unique<Impl>(path);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::no_such_file_or_directory) {
      throw EnvironmentError("there is no data file " + path +
                             ".\n  A text to begin with: lockstep data prepare austen");
    }
    throw EnvironmentError(
        base::str("cannot read the data file ", path, ": ", error.code().message(), "."));
  }
  const auto& file = opened->impl_->file;
  if (file.size() == 0) throw EnvironmentError("the data file " + path + " is empty.");
  if (const std::string other = detail::other_format(file); !other.empty()) {
    throw EnvironmentError(
        base::str(path, " is ", other, ".\n  Needed are uint16 tokens without a header."));
  }
  if (file.size() % 2 != 0) {
    throw EnvironmentError(base::str(path, " has ", base::with_commas(file.size()),
                                     " bytes, an odd number: tokens have two bytes each, so it is "
                                     "cut short or no token file."));
  }
  return opened;
}

const std::string& TokenFile::path() const { return impl_->file.path(); }

int64_t TokenFile::size() const { return impl_->file.size() / 2; }

void TokenFile::read(int64_t first, int64_t count, int64_t* out) const {
  if (first < 0 || count < 0 || count > size() || first > size() - count) {
    throw UsageError(base::str(count, " tokens from number ", first, " on were asked of ", path(),
                               ", which has ", size(), "."));
  }
  impl_->require_whole();
  const unsigned char* from = impl_->file.data() + 2 * first;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t id = 0;
    std::memcpy(&id, from + 2 * i, sizeof id);
    out[i] = id;
  }
}

void TokenFile::check_ids(int64_t vocab) const {
  if (vocab > UINT16_MAX) return;
  impl_->scan([&](int64_t first, const std::vector<uint16_t>& piece) {
    const auto offending =
        std::find_if(piece.begin(), piece.end(), [vocab](uint16_t id) { return id >= vocab; });
    if (offending == piece.end()) return true;
    throw EnvironmentError(base::str(path(), ": token ", first + (offending - piece.begin()),
                                     " has id ", *offending, ", but the vocabulary has ", vocab,
                                     " ids, 0 to ", vocab - 1,
                                     ".\n  Set model.vocab to the tokenizer's, or prepare the "
                                     "data with the model's tokenizer."));
  });
}

int64_t TokenFile::largest_id() const {
  int64_t largest = 0;
  impl_->scan([&](int64_t, const std::vector<uint16_t>& piece) {
    largest = std::max<int64_t>(largest, *std::max_element(piece.begin(), piece.end()));
    return true;
  });
  return largest;
}

void require_window(const TokenFile& file, int64_t context) {
  if (context >= 1 && file.size() > context) return;
  throw EnvironmentError(base::str(
      file.path(), " has ", base::with_commas(file.size()), " tokens; one window of context ",
      context, " needs ", base::with_commas(context + 1), ".\n  The largest context that fits is ",
      file.size() - 1, " (model.context)."));
}

}  // namespace lockstep::input
