#include "lockstep/cli/run_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/process_lives.h"

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

/// The process in the name of a file that is not whole yet (files/atomic_file.h); 0: it is none.
pid_t writer_of(const std::string& name) {
  const std::string mark = ".tmp-";
  const size_t at = name.find(mark);
  return at == std::string::npos ? 0 : std::atoi(name.c_str() + at + mark.size());
}

std::string json_text(const ResolvedConfig& resolved) {
  return plan::to_json(resolved.config).dump(2) + "\n";
}

void replace_file(const std::string& path, const std::string& text) {
  files::AtomicFile file(path);
  file.write(text);
  file.commit();
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
      write_file(folder + "/config.json", json_text(resolved));
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

void replace_config(const std::string& folder, const ResolvedConfig& resolved, int64_t step) {
  const std::string path = folder + "/config.json";
  const std::string former = read_file(path);
  const std::string text = json_text(resolved);
  if (text == former) return;
  const std::string kept = base::str(folder, "/config_before_step_", step, ".json");
  std::error_code error;
  // What stands there already are the settings of the steps before; those of a start in between
  // have left no step.
  if (!fs::exists(kept, error)) replace_file(kept, former);
  replace_file(path, text);
  replace_file(folder + "/config.toml", config_as_toml(resolved));
}

std::string new_log_folder(const std::string& folder) {
  for (int start = 1;; ++start) {
    std::string logs = base::str(folder, "/resume_", start);
    if (mkdir(logs.c_str(), 0777) == 0) return logs;
    if (errno != EEXIST) {
      throw EnvironmentError(base::str("cannot make ", logs, ": ", std::strerror(errno), "."));
    }
  }
}

void remove_unfinished_files(const std::string& folder) {
  checkpoints::remove_unfinished(folder);
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const pid_t writer = writer_of(entry->path().filename().string());
    const bool at_work = writer != getpid() && files::process_lives(writer);
    if (writer > 0 && !at_work) unfinished.push_back(entry->path());
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
