#include "lockstep/cli/job_token.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMostBytes = 4096;  // of the file

std::string without_space_around(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

[[noreturn]] void refuse(const std::string& file, const std::string& reason) {
  throw UsageError(base::str("--rendezvous-token-file ", file, ": ", reason,
                             "\n  To make one: (umask 077; openssl rand -hex 16 > ", file, ")"));
}

}  // namespace

std::string job_token(const std::string& file) {
  if (file.empty()) {
    const char* token = std::getenv("LOCKSTEP_JOB_TOKEN");
    return token == nullptr ? "" : token;
  }
  struct stat about {};
  const bool is_there = ::stat(file.c_str(), &about) == 0;
  if (is_there && !S_ISREG(about.st_mode)) refuse(file, "it is no file.");
  if (is_there && (about.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    refuse(file, "every user of this machine can read or change it, so it keeps no secret.");
  }
  std::ifstream in(file, std::ios::binary);
  if (!is_there || !in) {
    throw EnvironmentError(
        base::str("--rendezvous-token-file ", file, ": ", std::strerror(errno), "."));
  }
  std::string text(kMostBytes, '\0');
  in.read(text.data(), kMostBytes);
  text.resize(static_cast<size_t>(in.gcount()));
  const std::string token = without_space_around(text);
  if (token.empty()) refuse(file, "it is empty.");
  return token;
}

}  // namespace lockstep::cli
