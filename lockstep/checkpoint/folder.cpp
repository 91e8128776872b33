#include "lockstep/checkpoint/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/other_formats.h"
#include "lockstep/files/process_lives.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/write_point.h"

namespace lockstep::checkpoints {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "step_";
constexpr const char* kUnfinished = ".tmp-";
/// More than any manifest or index has: what is larger is not read.
constexpr int64_t kMostJsonBytes = 1 * GiB;

std::string text_of(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) throw StateError(base::str("cannot read ", path, ": ", error.message(), "."));
  if (static_cast<int64_t>(bytes) > kMostJsonBytes) {
    throw StateError(base::str(path, " has ", base::with_commas(static_cast<int64_t>(bytes)),
                               " bytes: more than such a file can have."));
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw StateError(base::str("cannot read ", path, ": ", std::strerror(errno), "."));
  return std::move(text).str();
}

/// `parse` gives its reason; the file's name is added here.
template <class Parse>
auto parsed(const std::string& path, const std::string& text, const Parse& parse) {
  try {
    if (const std::string code = files::code_carrying_format(text); !code.empty()) {
      throw StateError(base::str("it is ", code, "; nothing in it was run, and nothing will be"));
    }
    return parse(text);
  } catch (const StateError& error) {
    throw StateError(base::str(path, " cannot be used: ", error.what(), "."));
  }
}

/// -1: it is no name of a checkpoint's folder.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + std::strlen(kPrefix), end, step);
  return error == std::errc() && stop == end ? step : -1;
}

void sync_folder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems cannot: the files are synced already
  close(fd);
}

[[noreturn]] void fail(const std::string& action, const std::string& path, int error) {
  throw StateError(base::str("cannot ", action, " ", path, ": ", std::strerror(error), "."));
}

/// The process that an unfinished folder's name ends with; 0: none.
pid_t owner_of(const std::string& name) {
  const size_t at = name.find(kUnfinished);
  if (at == std::string::npos) return 0;
  pid_t owner = 0;
  const char* const begin = name.data() + at + std::strlen(kUnfinished);
  std::from_chars(begin, name.data() + name.size(), owner);
  return owner;
}

void remove_checkpoint(const std::string& folder) {
  std::error_code error;
  fs::remove(fs::path(folder) / kManifestFile, error);
  fs::remove_all(folder, error);
}

/// Where the same step was saved before, the two change places at once: one of them is always
/// there.
void put_in_place(const std::string& unfinished, const std::string& target) {
  std::error_code error;
  if (!fs::exists(target, error)) {
    if (rename(unfinished.c_str(), target.c_str()) != 0) fail("put in place", target, errno);
    return;
  }
  if (renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    remove_checkpoint(unfinished);
    return;
  }
  // A file system that cannot swap: the older one steps aside, and back if need be.
  const std::string aside = unfinished + "-old";
  if (rename(target.c_str(), aside.c_str()) != 0) fail("replace", target, errno);
  if (rename(unfinished.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    rename(aside.c_str(), target.c_str());
    fail("put in place", target, reason);
  }
  remove_checkpoint(aside);
}

}  // namespace

std::string checkpoints_of(const std::string& run_folder) {
  return (fs::path(run_folder) / "checkpoints").string();
}

std::string folder_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return kPrefix + digits;
}

bool is_checkpoint(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(fs::path(folder) / kManifestFile, error);
}

std::vector<Found> complete_checkpoints(const std::string& run_folder) {
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints_of(run_folder), error), end; !error && entry != end;
       entry.increment(error)) {
    const int64_t step = step_of(entry->path().filename().string());
    if (step >= 0 && is_checkpoint(entry->path().string())) {
      found.push_back({entry->path().string(), step});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

std::string checkpoint_at(const std::string& path) {
  if (is_checkpoint(path)) return path;
  const std::vector<Found> found = complete_checkpoints(path);
  if (!found.empty()) return found.front().folder;
  std::error_code error;
  const auto is_folder = [&error](const fs::path& folder) {
    return fs::is_directory(folder, error);
  };
  if (!is_folder(path)) {
    const std::string in_runs = (fs::path("runs") / path).string();
    throw StateError(base::str(
        "there is no run or checkpoint ", path, ".",
        is_folder(in_runs) ? base::str("\n  Did you mean ", in_runs, "?") : std::string()));
  }
  if (is_folder(checkpoints_of(path))) {
    throw StateError(base::str(checkpoints_of(path), " holds no complete checkpoint."));
  }
  throw StateError(
      base::str(path, " is no checkpoint, since it has no ", kManifestFile,
                ", and no run with checkpoints.\n  A run makes them every so many steps with --set "
                "checkpoint.every=STEPS, and when it gets SIGUSR1."));
}

std::string hint_at_older(const std::vector<Found>& found, size_t damaged) {
  if (damaged + 1 >= found.size()) return "";
  return base::str("\n  An older one: --set checkpoint.fall_back=true (step ",
                   found[damaged + 1].step, ").");
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = (fs::path(folder) / kManifestFile).string();
  return parsed(path, text_of(path), [&folder](const std::string& text) {
    Manifest manifest = parse_manifest(text);
    const int64_t named = step_of(fs::path(folder).filename().string());
    if (named >= 0 && named != manifest.step) {
      throw StateError(base::str("it is of step ", manifest.step,
                                 ", and its folder is named as of ", named, ": it was renamed"));
    }
    return manifest;
  });
}

Index read_index(const std::string& folder, const Manifest& manifest) {
  const std::string path = (fs::path(folder) / kIndexFile).string();
  return parsed(path, text_of(path), [&manifest](const std::string& text) {
    if (std::ssize(text) != manifest.index_bytes ||
        files::sha256_hex(text) != manifest.index_sha256) {
      throw StateError(base::str("it is not the one of the manifest (", std::ssize(text),
                                 " bytes of ", manifest.index_bytes, ", or another digest)"));
    }
    return parse_index(text, static_cast<int>(manifest.files.size()));
  });
}

std::vector<std::string> set_aside(const std::string& run_folder, int64_t step) {
  std::vector<std::string> aside;
  for (const Found& found : complete_checkpoints(run_folder)) {
    if (found.step <= step) break;
    std::string name = found.folder + ".left";
    std::error_code error;
    for (int again = 2; fs::exists(name, error); ++again) {
      name = base::str(found.folder, ".left-", again);
    }
    if (rename(found.folder.c_str(), name.c_str()) != 0) fail("set aside", found.folder, errno);
    aside.push_back(name);
  }
  return aside;
}

std::string begin_folder(const std::string& target) {
  const std::string parent = fs::path(target).parent_path().string();
  std::error_code error;
  // One level: the folder of a run that somebody removed is not made again.
  if (!parent.empty() && !fs::is_directory(parent, error) && mkdir(parent.c_str(), 0777) != 0) {
    fail("make the folder", parent, errno == EEXIST ? ENOTDIR : errno);
  }
  // A writer of this process that was given up may still come back, to a folder that is gone.
  static std::atomic<int> count{0};
  const std::string unfinished = base::str(target, kUnfinished, getpid(), "-", count++);
  fs::remove_all(unfinished, error);  // of a process that had the same number
  if (mkdir(unfinished.c_str(), 0777) != 0) fail("make the folder", unfinished, errno);
  files::pass_write_point();
  return unfinished;
}

void commit_folder(const std::string& unfinished, const std::string& target, Manifest manifest,
                   const Index& index) {
  const std::string text = index_text(index);
  parse_index(text, static_cast<int>(manifest.files.size()));  // nothing is missing, nothing twice
  manifest.index_bytes = std::ssize(text);
  manifest.index_sha256 = files::sha256_hex(text);
  const auto write = [&unfinished](const char* name, const std::string& contents) {
    files::AtomicFile file((fs::path(unfinished) / name).string());
    file.write(contents);
    file.commit();
  };
  write(kIndexFile, text);
  write(kManifestFile, manifest_text(manifest));
  files::pass_write_point();
  put_in_place(unfinished, target);
  files::pass_write_point();
  sync_folder(fs::path(target).parent_path().string());
}

void discard_folder(const std::string& unfinished) noexcept {
  std::error_code error;
  if (!unfinished.empty()) fs::remove_all(unfinished, error);
}

void remove_unfinished(const std::string& run_folder) {
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints_of(run_folder), error), end; !error && entry != end;
       entry.increment(error)) {
    const pid_t owner = owner_of(entry->path().filename().string());
    if (owner > 0 && (owner == getpid() || !files::process_lives(owner)))
      left.push_back(entry->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

std::vector<Found> to_prune(const std::string& run_folder, int64_t keep, int64_t keep_every) {
  std::vector<Found> found = complete_checkpoints(run_folder);
  if (std::ssize(found) <= keep) return {};
  found.erase(found.begin(), found.begin() + keep);
  std::erase_if(found, [keep_every](const Found& checkpoint) {
    return keep_every > 0 && checkpoint.step % keep_every == 0;
  });
  std::reverse(found.begin(), found.end());
  return found;
}

std::vector<Found> prune(const std::string& run_folder, int64_t keep, int64_t keep_every) {
  std::vector<Found> removed = to_prune(run_folder, keep, keep_every);
  for (const Found& checkpoint : removed) remove_checkpoint(checkpoint.folder);
  return removed;
}

}  // namespace lockstep::checkpoints
