/// A long row of token ids that samples are cut from.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::input {

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// What messages call it.
  virtual const std::string& path() const = 0;
  virtual int64_t size() const = 0;  // tokens

  /// Copies tokens first, first + 1, ... into `out`. Any thread may call. Throws UsageError if they
  /// are not there, EnvironmentError if they cannot be read any more.
  virtual void read(int64_t first, int64_t count, int64_t* out) const = 0;

  /// Throws EnvironmentError naming the first position whose id is not 0 <= id < `vocab`.
  void check_ids(int64_t vocab) const;

  int64_t largest_id() const;
};

/// Throws EnvironmentError, naming the largest context that fits, if `tokens` has fewer tokens than
/// one window: `context` inputs and the last target.
void require_window(const TokenSource& tokens, int64_t context);

}  // namespace lockstep::input
