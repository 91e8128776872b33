/// The five kinds of error, and the exit code that the command gives for each.
///
/// A message says what happened, which rank it happened on, and what to do about it.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

class Error : public std::runtime_error {
 public:
  Error(std::string message, int exit_code)
      : std::runtime_error(std::move(message)), exit_code_(exit_code) {}

  /// What the `lockstep` command exits with when this error ends it.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// The caller's fault; found before any byte is sent.
class UsageError : public Error {
 public:
  explicit UsageError(std::string message) : Error(std::move(message), 2) {}
};

/// Something is not installed, not there, or not the data it should be.
class EnvironmentError : public Error {
 public:
  explicit EnvironmentError(std::string message) : Error(std::move(message), 3) {}
};

/// A peer or the network: a timeout or a mismatch between ranks. The group is finished.
class CommError : public Error {
 public:
  explicit CommError(std::string message, int exit_code = 5)
      : Error(std::move(message), exit_code) {}
};

/// A file or checkpoint: what was expected, what was read.
class StateError : public Error {
 public:
  explicit StateError(std::string message) : Error(std::move(message), 6) {}
};

/// Memory ran out: what was alive, which setting would fit.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(std::string message) : Error(std::move(message), 7) {}
};

/// Training itself failed: a loss that is no number.
class TrainingError : public Error {
 public:
  explicit TrainingError(std::string message) : Error(std::move(message), 1) {}
};

/// A rank died: was killed, crashed, or exited without a word.
class RankDied : public CommError {
 public:
  explicit RankDied(std::string message) : CommError(std::move(message), 4) {}
};

}  // namespace lockstep
