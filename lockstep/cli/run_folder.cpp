#include "lockstep/cli/run_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace fs = std::filesystem;
namespace {

std::string four_hex_digits(unsigned number) {
  std::string digits;
  for (int shift = 12; shift >= 0; shift -= 4) digits += "0123456789abcdef"[number >> shift & 15];
  return digits;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file) {
    throw EnvironmentError(
        base::str("cannot write ", text.size(), " bytes to ", path, ": ", std::strerror(errno)));
  }
}

}  // namespace

std::string create_run_folder(const ResolvedConfig& resolved) {
  const auto& run = resolved.config.run;
  std::error_code error;
  fs::create_directories(run.dir, error);
  if (error) {
    throw EnvironmentError(base::str("cannot make the folder ", run.dir, ": ", error.message(),
                                     ".\n  Another place: --set run.dir=FOLDER"));
  }
  std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::string folder =
        (fs::path(run.dir) / (run.name + "-" + four_hex_digits(random()))).string();
    // mkdir fails where the name is taken: two runs that start at once never share a folder.
    if (mkdir(folder.c_str(), 0777) == 0) {
      write_file(folder + "/config.json", plan::to_json(resolved.config).dump(2) + "\n");
      write_file(folder + "/config.toml", config_as_toml(resolved));
      return folder;
    }
    if (errno != EEXIST) {
      throw EnvironmentError(base::str("cannot make the run folder ", folder, ": ",
                                       std::strerror(errno),
                                       ".\n  Another place: --set run.dir=FOLDER"));
    }
  }
  throw EnvironmentError(base::str("no free name for a run \"", run.name, "\" in ", run.dir,
                                   ".\n  Another name: --set run.name=NAME"));
}

std::string weights_of(const std::string& run_or_file) {
  std::error_code error;
  if (fs::is_directory(run_or_file, error)) {
    const std::string file = (fs::path(run_or_file) / "final.safetensors").string();
    if (fs::is_regular_file(file, error)) return file;
    throw StateError(base::str("there is no ", file,
                               ".\n  A run writes it at its end; did this one get there?"));
  }
  if (fs::is_regular_file(run_or_file, error)) return run_or_file;
  const std::string in_runs = (fs::path("runs") / run_or_file).string();
  throw StateError(base::str("there is no run or file ", run_or_file, ".",
                             fs::is_directory(in_runs, error)
                                 ? base::str("\n  Did you mean ", in_runs, "?")
                                 : std::string()));
}

void remove_unfinished_files(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const bool is_one = entry->path().filename().string().find(".tmp-") != std::string::npos;
    if (is_one) unfinished.push_back(entry->path());
  }
  for (const fs::path& file : unfinished) fs::remove(file, error);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw StateError(base::str("cannot read ", path, ": ", std::strerror(errno)));
  return std::move(text).str();
}

}  // namespace lockstep::cli
