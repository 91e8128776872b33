/// What ranks write, on its way through the launcher: whole lines to its own stdout and stderr,
/// "[rank 2] " before each, and the bytes as they are into the rank's log.
///
///   rank 0  stdout --pipe--+--> rank_0000.log
///           stderr --pipe--+--> lines --> this process's stdout, stderr
///
/// Lines of two ranks never mix. A last line without a newline gets one; any bytes may be in a
/// line, and one of more than 1 MiB comes in parts. The last lines of each rank are kept for the
/// report of its end.
#pragma once

#include <poll.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/launch/console.h"
#include "lockstep/launch/descriptor.h"
#include "lockstep/launch/line_splitter.h"

namespace lockstep::launch {

class RankOutput {
 public:
  static constexpr size_t kKeptLines = 8;

  RankOutput();

  struct Ends {
    Descriptor out;  // become the rank's stdout and stderr
    Descriptor err;
  };
  /// Opens the pipes of one more rank: ranks are numbered as they are added. `prefix` goes before
  /// each shown line; `log` may be -1. Throws EnvironmentError when no more files may be open.
  Ends add_rank(const std::string& prefix, Descriptor log);

  /// What to wait for besides signals: pipes that may bring something, consoles that may take more.
  std::vector<pollfd> wanted() const;
  /// Moves on whatever can be moved without waiting.
  void serve();
  /// All ranks are gone: takes what their pipes still hold, up to the last line.
  void finish();
  bool has_more() const;

  std::vector<std::string> last_lines(int rank) const;
  /// Why stdout or stderr took no more, or a log; empty while all is well.
  std::string error() const;

 private:
  struct Source {
    Descriptor pipe;
    int rank = 0;
    Console* console = nullptr;
    std::unique_ptr<LineSplitter> lines;
  };
  struct Rank {
    std::string prefix;
    Descriptor log;
    std::deque<std::string> last_lines;
  };

  Descriptor add_source(int rank, Console& console);
  void read_from(Source& source);
  void take_line(int rank, Console& console, std::string_view line);
  void write_log(Rank& rank, std::string_view bytes);

  Console out_;
  Console err_;
  bool together_ = false;  // stdout and stderr are one file: lines of both take turns in out_
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::string log_error_;
};

}  // namespace lockstep::launch
