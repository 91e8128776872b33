#include "lockstep/files/austen.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/debian_package.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::files {
namespace {

constexpr const char* kAustenPackage = "r-cran-janeaustenr";
constexpr uint32_t kMaxRecordBytes = 256 * MiB;  // a broken length must not ask for 4 GiB

/// Reads big-endian words and strings from the front of a view. Throws a reason without the file.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool done() const { return bytes_.empty(); }

  std::string_view take(size_t count) {
    if (count > bytes_.size()) throw EnvironmentError("it is cut short");
    const auto taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  uint32_t word() {
    uint32_t value = 0;
    for (const char c : take(4)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }

  /// Unpacks the zlib stream at the front into exactly `raw_bytes`, and steps over it.
  std::string unpack(uint32_t raw_bytes) {
    if (raw_bytes > kMaxRecordBytes) throw EnvironmentError("its length is beyond belief");
    std::string raw(raw_bytes, '\0');
    z_stream stream{};
    if (inflateInit(&stream) != Z_OK) throw EnvironmentError("zlib does not start");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes_.data()));
    stream.avail_in = static_cast<uInt>(std::min<size_t>(bytes_.size(), UINT32_MAX));
    stream.next_out = reinterpret_cast<Bytef*>(raw.data());
    stream.avail_out = raw_bytes;
    const int status = inflate(&stream, Z_FINISH);
    const size_t used = stream.total_in;
    const size_t made = stream.total_out;
    inflateEnd(&stream);
    if (status != Z_STREAM_END || made != raw_bytes) {
      throw EnvironmentError("it does not unpack: cut short or changed");
    }
    bytes_.remove_prefix(used);
    return raw;
  }

 private:
  std::string_view bytes_;
};

void append_lines(std::string_view raw, std::string* text) {
  Reader reader(raw);
  if (reader.take(2) != "X\n") throw EnvironmentError("it is not in R's XDR format");
  if (reader.word() != 3) throw EnvironmentError("it is not of format version 3");
  reader.take(8);  // the version that wrote it, the oldest that reads it
  if (reader.take(reader.word()) != "UTF-8") throw EnvironmentError("it is not in UTF-8");
  if (reader.word() != 16) throw EnvironmentError("it is no plain vector of strings");
  const uint32_t count = reader.word();
  for (uint32_t i = 0; i < count; ++i) {
    if ((reader.word() & 0xff) != 9) throw EnvironmentError("it holds something else than strings");
    *text += reader.take(reader.word());
    *text += '\n';
  }
  if (!reader.done()) throw EnvironmentError("bytes follow its strings");
}

std::string fetch_austen_package(const std::string& folder) {
  try {
    return fetch_debian_package(kAustenPackage, folder);
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(base::str(
        error.what(), "\n  Fetch ", kAustenPackage,
        "_1.0.0-1_all.deb from a Debian mirror elsewhere and give it as --from FILE.deb, or\n"
        "  prepare a text of your own: lockstep data prepare FILE --out FOLDER"));
  }
}

}  // namespace

std::string decode_r_strings(const std::string& rdb_path) {
  int record = 0;
  try {
    const MappedFile file(rdb_path);
    Reader reader(file.text());
    std::string text;
    for (; !reader.done(); ++record) {
      const uint32_t raw_bytes = reader.word();
      append_lines(reader.unpack(raw_bytes), &text);
    }
    return text;
  } catch (const std::system_error& error) {
    throw EnvironmentError(base::str("cannot read ", rdb_path, ": ", error.code().message(), "."));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(base::str(rdb_path, ": record ", record,
                                     " is no text of an R database: ", error.what(), "."));
  }
}

std::string austen_text(const std::string& rdb_path) {
  std::string text = decode_r_strings(rdb_path);
  const std::string sha256 = sha256_hex(text);
  if (sha256 != kAustenSha256) {
    throw EnvironmentError(base::str(
        rdb_path, " holds another text than the six novels of r-cran-janeaustenr 1.0.0: sha256 ",
        sha256, ", expected ", kAustenSha256, "."));
  }
  return text;
}

bool prepare_austen(const std::string& from, Tokenizer& tokenizer, TokenDataOptions options) {
  const TokenDataOptions usual;
  if (tokenizer.name() == ByteTokenizer::kName && options.format == usual.format &&
      options.valid_fraction == usual.valid_fraction &&
      holds_byte_tokens(options.folder, kAustenSha256)) {
    return false;
  }
  const bool is_deb = from.ends_with(".deb");
  std::string text;
  if (!from.empty() && !is_deb) {
    text = austen_text(from);
  } else {
    const TempFolder work("austen");
    const std::string deb = is_deb ? from : fetch_austen_package(work.path());
    text = austen_text(unpack_debian_file(deb, "Rdata.rdb", work.path()));
  }
  options.source = base::str("Debian package ", kAustenPackage, " 1.0.0-1");
  write_token_data(text, tokenizer, options);
  return true;
}

}  // namespace lockstep::files
