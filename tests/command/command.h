/// Runs the built command as a user does: in the source folder, where `data/austen` lies.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace lockstep::testing {

struct CommandResult {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string out;
  std::string err;
  double seconds = 0;
};

/// A program under way. Its output goes to files in a folder of its own.
class Command {
 public:
  /// `arguments[0]` is a program beside the test program: "lockstep", "reference_digest".
  explicit Command(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  /// What it has written to stdout, and to stderr, until now.
  std::string output_so_far() const;
  std::string errors_so_far() const;
  CommandResult wait();

 private:
  TempFolder folder_;
  pid_t pid_ = -1;
  std::chrono::steady_clock::time_point start_;
};

/// The path of a program beside the test program.
std::string beside(const std::string& name);

/// All of a file; empty if there is none.
std::string text_of(const std::string& path);

/// Until `done` holds, or 60 s have gone by.
bool eventually(const std::function<bool()>& done);

/// `lockstep` with these arguments, to its end.
CommandResult lockstep(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment = {});

/// Arguments of `lockstep train` for a model whose steps take milliseconds.
std::vector<std::string> tiny_nano();

/// `lockstep train ARGUMENTS --json`, its run folder in `runs`; fails the test unless it ends well.
nlohmann::json train(const TempFolder& runs, std::vector<std::string> arguments);

/// What `lockstep bench` measures: an operation, and the list of its algorithms for --algorithm.
std::vector<std::pair<std::string, std::string>> every_algorithm();

/// Processes whose parent is `parent`.
std::vector<pid_t> children_of(pid_t parent);

/// The value of a variable in the environment of a process; empty if there is none.
std::string environment_of(pid_t pid, const std::string& name);

}  // namespace lockstep::testing
