#include "lockstep/cli/capture.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
  }
}

}  // namespace

Captured capture(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment, Errors errors) {
  std::array<int, 2> words{};
  if (pipe2(words.data(), O_CLOEXEC) != 0) {
    throw EnvironmentError(base::str("cannot start ", command[0], ": ", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, words[1], STDOUT_FILENO);
  if (errors == Errors::kept) {
    posix_spawn_file_actions_adddup2(&actions, words[1], STDERR_FILENO);
  }
  pid_t pid = -1;
  const int error = posix_spawn(&pid, command[0].c_str(), &actions, nullptr,
                                pointers_to(command).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(words[1]);
  if (error != 0) {
    close(words[0]);
    throw EnvironmentError(base::str("cannot start ", command[0], ": ", std::strerror(error)));
  }

  Captured captured;
  captured.output = read_to_end(words[0]);
  close(words[0]);
  while (captured.output.ends_with('\n')) captured.output.pop_back();
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  captured.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return captured;
}

}  // namespace lockstep::cli
