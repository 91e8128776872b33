#include "lockstep/files/picture_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/crc32c.h"

namespace lockstep::files {
namespace {

constexpr std::string_view kMagic = "lspics01";
constexpr size_t kHeaderBytes = 32;
constexpr size_t kChecked = 12;                    // the checksum is of all from here on
constexpr int64_t kMostPoints = int64_t{1} << 24;  // of a picture
constexpr int64_t kMostClasses = 256;              // a label is a byte

uint32_t word_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

void append_word(std::string* bytes, int64_t value) {
  for (int shift = 0; shift < 32; shift += 8) {
    *bytes += static_cast<char>(value >> shift & 0xff);
  }
}

/// What is wrong with a shape, or with labels of it; empty: nothing.
std::string wrong_with(const PictureShape& shape, std::string_view labels) {
  if (shape.count < 1 || shape.rows < 1 || shape.columns < 1 ||
      shape.rows > kMostPoints / shape.columns) {
    return base::str(shape.count, " pictures of ", shape.rows, " by ", shape.columns,
                     " points are none, or too large");
  }
  if (shape.classes < 1 || shape.classes > kMostClasses) {
    return base::str(shape.classes, " classes are not 1 to ", kMostClasses);
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    const int64_t label = static_cast<unsigned char>(labels[i]);
    if (label < shape.classes) continue;
    return base::str("picture ", i, " has label ", label, " of ", shape.classes, " classes");
  }
  return "";
}

/// Reads a header and checks all that it says. Throws a reason without the file.
PictureShape checked(std::string_view file) {
  if (!file.starts_with(kMagic)) throw EnvironmentError("it does not begin with \"lspics01\"");
  if (file.size() < kHeaderBytes) throw EnvironmentError("it ends inside its header");
  const PictureShape shape{.count = word_at(file, 12),
                           .rows = word_at(file, 16),
                           .columns = word_at(file, 20),
                           .classes = word_at(file, 24)};
  if (const std::string wrong = wrong_with(shape, {}); !wrong.empty()) {
    throw EnvironmentError(wrong);
  }
  // 32 bits times 25 do not wrap.
  const int64_t body = shape.count * (1 + shape.points());
  if (body != static_cast<int64_t>(file.size() - kHeaderBytes)) {
    throw EnvironmentError(base::str("its header says ", body, " bytes, and it has ",
                                     file.size() - kHeaderBytes, " behind it"));
  }
  if (crc32c(file.substr(kChecked)) != word_at(file, 8)) {
    throw EnvironmentError("its checksum is another: it was changed");
  }
  const std::string wrong =
      wrong_with(shape, file.substr(kHeaderBytes, static_cast<size_t>(shape.count)));
  if (!wrong.empty()) throw EnvironmentError(wrong);
  return shape;
}

}  // namespace

PictureFile::PictureFile(const std::string& path) : file_(path) {
  shape_ = checked(file_.text());
  labels_ = file_.text().substr(kHeaderBytes, static_cast<size_t>(shape_.count));
}

std::shared_ptr<const PictureFile> PictureFile::open(const std::string& path) {
  try {
    return std::make_shared<const PictureFile>(path);
  } catch (const std::system_error& error) {
    throw EnvironmentError(base::str("cannot read ", path, ": ", error.code().message(),
                                     ".\n  lockstep data prepare fashion makes data/fashion."));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(base::str(path, " is no file of pictures: ", error.what(),
                                     ".\n  lockstep data prepare fashion makes data/fashion."));
  }
}

void PictureFile::read(int64_t index, uint8_t* points) const {
  if (file_.was_cut()) {
    throw EnvironmentError(base::str(file_.path(), " was cut while it was read."));
  }
  const int64_t at = static_cast<int64_t>(kHeaderBytes) + shape_.count + index * shape_.points();
  std::memcpy(points, file_.data() + at, static_cast<size_t>(shape_.points()));
}

int64_t PictureFile::count_of(int64_t label) const {
  return std::count(labels_.begin(), labels_.end(), static_cast<char>(label));
}

bool is_picture_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string begin(kMagic.size(), '\0');
  return in.read(begin.data(), std::ssize(begin)) && begin == kMagic;
}

void write_pictures(const std::string& path, const PictureShape& shape, std::string_view labels,
                    std::string_view points) {
  std::string wrong = wrong_with(shape, labels);
  if (wrong.empty() &&
      (std::ssize(labels) != shape.count || std::ssize(points) != shape.count * shape.points() ||
       shape.count > std::numeric_limits<uint32_t>::max())) {
    wrong = base::str(labels.size(), " labels and ", points.size(), " points are not those of ",
                      shape.count, " pictures of ", shape.points());
  }
  if (!wrong.empty()) throw UsageError(base::str(path, ": ", wrong, "."));
  std::string body;
  for (const int64_t word : {shape.count, shape.rows, shape.columns, shape.classes, int64_t{0}}) {
    append_word(&body, word);
  }
  body += labels;
  body += points;
  std::string begin(kMagic);
  append_word(&begin, crc32c(body));
  AtomicFile file(path);
  file.write(begin);
  file.write(body);
  file.commit();
}

}  // namespace lockstep::files
