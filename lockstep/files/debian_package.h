/// Files out of a Debian package that is fetched and unpacked, but not installed.
#pragma once

#include <string>

namespace lockstep::files {

/// Fetches package `name` with apt-get into `folder` and returns the path of the .deb. Brings
/// apt's lists up to date if it does not know the package. Throws EnvironmentError quoting apt-get.
std::string fetch_debian_package(const std::string& name, const std::string& folder);

/// Unpacks `deb` with dpkg-deb below `folder` and returns the one file in it that is called
/// `file_name`. Throws EnvironmentError if the package cannot be unpacked or has no such file.
std::string unpack_debian_file(const std::string& deb, const std::string& file_name,
                               const std::string& folder);

}  // namespace lockstep::files
