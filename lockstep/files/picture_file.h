/// Grey pictures with a label each, in a file that is mapped and read as it lies.
///
///   bytes 0-7    "lspics01"
///         8-11   uint32, little-endian, as all of the header: CRC-32C of the file from byte 12 on
///        12-27   pictures, rows, columns, classes
///        28-31   0
///   then         a byte for each picture: its label, below `classes`
///   then         a byte for each point, 0 black to 255 white, row by row, picture by picture
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/files/mapped_file.h"

namespace lockstep::files {

struct PictureShape {
  int64_t count = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t classes = 0;
  int64_t points() const { return rows * columns; }  // of a picture
};

class PictureFile {
 public:
  /// Throws EnvironmentError: the file is not there, or it is no file of this format, whole and
  /// unchanged, with what is wrong. The whole file is read once for that.
  static std::shared_ptr<const PictureFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const PictureShape& shape() const { return shape_; }
  /// Copies picture `index` to `points`, shape().points() of them. Throws EnvironmentError if the
  /// file was cut since it was opened.
  void read(int64_t index, uint8_t* points) const;
  int64_t label(int64_t index) const {
    return static_cast<uint8_t>(labels_[static_cast<size_t>(index)]);
  }
  /// How many pictures have the label.
  int64_t count_of(int64_t label) const;

  /// The opened file; `shape` was checked against it.
  PictureFile(const std::string& path);

 private:
  MappedFile file_;
  PictureShape shape_;
  std::string labels_;
};

/// Whether the file begins as one of this format. False for what cannot be read.
bool is_picture_file(const std::string& path);

/// Throws UsageError if labels or points are not as many as `shape` says, or a label is no class;
/// StateError if the file cannot be written. It appears whole or not at all.
void write_pictures(const std::string& path, const PictureShape& shape, std::string_view labels,
                    std::string_view points);

}  // namespace lockstep::files
