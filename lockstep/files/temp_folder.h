/// A folder of its own for work on files, gone with the object.
#pragma once

#include <string>

namespace lockstep::files {

class TempFolder {
 public:
  /// Makes `$TMPDIR/lockstep-PURPOSE-XXXXXX` (/tmp if TMPDIR is not set), readable by its owner
  /// alone. Throws EnvironmentError naming the folder.
  explicit TempFolder(const std::string& purpose);
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The path of `name` in the folder.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace lockstep::files
