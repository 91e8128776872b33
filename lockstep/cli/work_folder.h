/// Where a command that starts runs of its own keeps what they leave, and keeps them quiet.
#pragma once

#include <optional>
#include <string>

#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {

class WorkFolder {
 public:
  /// `keep`: the folder that stays; empty: one that goes with this object. Throws UsageError where
  /// it holds something, EnvironmentError where it cannot be made.
  WorkFolder(const std::string& purpose, const std::string& keep);

  const std::string& path() const { return path_; }

 private:
  std::optional<files::TempFolder> temporary_;
  std::string path_;
};

/// While this lives, what this process and its children write goes to a file.
class Hush {
 public:
  explicit Hush(const std::string& path);
  ~Hush();
  Hush(const Hush&) = delete;
  Hush& operator=(const Hush&) = delete;

 private:
  int out_;
  int err_;
};

}  // namespace lockstep::cli
