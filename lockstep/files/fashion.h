/// Fashion-MNIST: 60,000 and 10,000 grey pictures of 28 by 28 points, of ten kinds of clothing.
///
/// Source  Xiao, Rasul and Vollgraf 2017, arXiv:1708.07747; the Debian package
/// dataset-fashion-mnist
#pragma once

#include <array>
#include <string>

namespace lockstep::files {

inline constexpr std::array<const char*, 10> kFashionClasses = {
    "t-shirt", "trouser", "pullover", "dress", "coat",
    "sandal",  "shirt",   "sneaker",  "bag",   "ankle boot"};

/// Writes FOLDER/train.pictures and FOLDER/val.pictures. `from`: the package as FILE.deb, or a
/// folder with its four files; empty: it is fetched with apt-get, not installed. False: both are
/// there already, with the right sha256. Throws EnvironmentError: it cannot be fetched, a file is
/// broken, or holds other pictures.
bool prepare_fashion(const std::string& from, const std::string& folder);

/// The file in `folder` that would be written over and holds something else; empty: none does.
std::string other_than_fashion(const std::string& folder);

}  // namespace lockstep::files
