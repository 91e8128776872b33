#include "lockstep/files/debian_package.h"

#include <unistd.h>

#include <filesystem>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/detail/run_program.h"

namespace lockstep::files {
namespace {

std::vector<std::string> apt_get(const std::vector<std::string>& words) {
  // A network that is not there should show in seconds, and a folder of root's alone is closed to
  // the user that apt would otherwise fetch as.
  std::vector<std::string> command = {"apt-get", "-q",
                                      "-o",      "Acquire::http::Timeout=20",
                                      "-o",      "Acquire::https::Timeout=20",
                                      "-o",      "Acquire::Retries=1"};
  if (geteuid() == 0) command.insert(command.end(), {"-o", "APT::Sandbox::User=root"});
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

/// The file below `folder` for which `wanted` holds; empty if there is none.
template <class Wanted>
std::string find_file(const std::string& folder, Wanted wanted) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && wanted(entry.path())) return entry.path().string();
  }
  return "";
}

/// The last lines of a program's output, indented as a quotation.
std::string quoted_end(const std::string& output) {
  constexpr int kLines = 6;
  size_t start = output.find_last_not_of('\n');
  if (start == std::string::npos) return "";
  const size_t end = start + 1;
  for (int line = 0; line < kLines && start != std::string::npos; ++line) {
    start = start == 0 ? std::string::npos : output.rfind('\n', start - 1);
  }
  std::string text = "\n" + output.substr(start == std::string::npos ? 0 : start + 1,
                                          end - (start == std::string::npos ? 0 : start + 1));
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 5) {
    text.replace(at, 1, "\n  | ");
  }
  return text;
}

}  // namespace

std::string fetch_debian_package(const std::string& name, const std::string& folder) {
  const auto download = apt_get({"download", name});
  auto result = detail::run_program(download, folder);
  if (result.exit_code != 0) {
    const auto update = detail::run_program(apt_get({"update"}), folder);
    if (update.exit_code == 0) {
      result = detail::run_program(download, folder);
    } else {
      result.output += update.output;
    }
  }
  const std::string deb = find_file(folder, [&name](const std::filesystem::path& path) {
    return path.extension() == ".deb" && path.filename().string().starts_with(name + "_");
  });
  if (result.exit_code != 0 || deb.empty()) {
    throw EnvironmentError(base::str("apt-get could not fetch the Debian package ", name,
                                     " (exit code ", result.exit_code,
                                     "):", quoted_end(result.output)));
  }
  return deb;
}

std::string unpack_debian_file(const std::string& deb, const std::string& file_name,
                               const std::string& folder) {
  const auto package = std::filesystem::absolute(deb).string();
  const auto result = detail::run_program({"dpkg-deb", "-x", package, folder}, folder);
  if (result.exit_code != 0) {
    throw EnvironmentError(base::str("dpkg-deb could not unpack ", deb, " (exit code ",
                                     result.exit_code, "):", quoted_end(result.output)));
  }
  const std::string file = find_file(folder, [&file_name](const std::filesystem::path& path) {
    return path.filename() == file_name;
  });
  if (file.empty()) throw EnvironmentError(deb + " holds no file called " + file_name + ".");
  return file;
}

}  // namespace lockstep::files
