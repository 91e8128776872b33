/// What `lockstep data` does for files of pictures (files/picture_file.h).
#pragma once

#include <string>

namespace lockstep::cli {

/// `lockstep data prepare fashion`: OUT/train.pictures and OUT/val.pictures of Fashion-MNIST; an
/// empty `out` is data/fashion. `from`: the Debian package as FILE.deb, or a folder with its files.
/// Throws UsageError for a folder with other pictures, unless `force`.
int prepare_fashion(const std::string& from, const std::string& out, bool force);

/// `lockstep data inspect FILE` of a file of pictures.
int inspect_pictures(const std::string& path, bool as_json);

}  // namespace lockstep::cli
