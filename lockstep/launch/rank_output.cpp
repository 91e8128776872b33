#include "lockstep/launch/rank_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

constexpr size_t kKeptBytes = 400;  // of a kept line

bool are_one_file(int a, int b) {
  struct stat left {};
  struct stat right {};
  return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
         left.st_ino == right.st_ino;
}

}  // namespace

RankOutput::RankOutput()
    : out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      together_(are_one_file(STDOUT_FILENO, STDERR_FILENO)) {}

RankOutput::Ends RankOutput::add_rank(const std::string& prefix, Descriptor log) {
  const int rank = static_cast<int>(ranks_.size());
  ranks_.push_back(
      std::make_unique<Rank>(Rank{.prefix = prefix, .log = std::move(log), .last_lines = {}}));
  Ends ends;
  ends.out = add_source(rank, out_);
  ends.err = add_source(rank, together_ ? out_ : err_);
  return ends;
}

Descriptor RankOutput::add_source(int rank, Console& console) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw EnvironmentError(base::str(
        "cannot show what rank ", rank, " writes: pipe: ", std::strerror(errno),
        ".\n  The launcher holds two open files a rank: raise `ulimit -n`, or give a --log-dir, ",
        "where only rank 0 is shown."));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  auto source = std::make_unique<Source>();
  source->pipe.reset(ends[0]);
  source->rank = rank;
  source->console = &console;
  source->lines = std::make_unique<LineSplitter>(
      [this, rank, &console](std::string_view line) { take_line(rank, console, line); });
  sources_.push_back(std::move(source));
  return Descriptor(ends[1]);
}

void RankOutput::take_line(int rank, Console& console, std::string_view line) {
  Rank& from = *ranks_[static_cast<size_t>(rank)];
  console.add(from.prefix);
  console.add(line);
  if (line.ends_with('\n')) line.remove_suffix(1);
  from.last_lines.emplace_back(line.substr(0, kKeptBytes));
  if (from.last_lines.size() > kKeptLines) from.last_lines.pop_front();
}

void RankOutput::write_log(Rank& rank, std::string_view bytes) {
  while (rank.log.get() >= 0 && !bytes.empty()) {
    const ssize_t done = write(rank.log.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      log_error_ = std::strerror(errno);
      rank.log.reset();
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

std::vector<pollfd> RankOutput::wanted() const {
  std::vector<pollfd> wanted;
  for (const auto& source : sources_) {
    // A full console holds its ranks up, as a terminal would.
    if (source->pipe.get() >= 0 && !source->console->is_full()) {
      wanted.push_back({source->pipe.get(), POLLIN, 0});
    }
  }
  for (const Console* console : {&out_, &err_}) {
    if (console->has_more()) wanted.push_back({console->fd(), POLLOUT, 0});
  }
  return wanted;
}

void RankOutput::read_from(Source& source) {
  std::array<char, 65536> buffer;
  const ssize_t got = read(source.pipe.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    source.lines->finish();
    source.pipe.reset();
    return;
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  write_log(*ranks_[static_cast<size_t>(source.rank)], bytes);
  source.lines->add(bytes);
}

void RankOutput::serve() {
  for (const auto& source : sources_) {
    if (source->pipe.get() >= 0 && !source->console->is_full()) read_from(*source);
  }
  for (Console* console : {&out_, &err_}) {
    pollfd ready{console->fd(), POLLOUT, 0};
    // So many pieces a turn that what was just read can go, so few that signals are not kept
    // waiting.
    for (int piece = 0; piece < 64 && console->has_more() && poll(&ready, 1, 0) > 0; ++piece) {
      console->write_some();
    }
  }
}

void RankOutput::finish() {
  for (const auto& source : sources_) {
    if (source->pipe.get() < 0) continue;
    // A process that left its rank's group may hold the pipe for ever, and even fill it: what a
    // pipe can hold is all that is taken.
    pollfd ready{source->pipe.get(), POLLIN, 0};
    for (int turn = 0; turn < 64 && source->pipe.get() >= 0 && poll(&ready, 1, 0) > 0; ++turn) {
      read_from(*source);
    }
    source->lines->finish();
    source->pipe.reset();
  }
}

bool RankOutput::has_more() const { return out_.has_more() || err_.has_more(); }

std::vector<std::string> RankOutput::last_lines(int rank) const {
  if (rank < 0 || rank >= static_cast<int>(ranks_.size())) return {};
  const std::deque<std::string>& lines = ranks_[static_cast<size_t>(rank)]->last_lines;
  return {lines.begin(), lines.end()};
}

std::string RankOutput::error() const {
  if (!log_error_.empty()) return "a log of the ranks: " + log_error_;
  if (!out_.error().empty()) return "what ranks wrote to stdout: " + out_.error();
  if (!err_.error().empty()) return "what ranks wrote to stderr: " + err_.error();
  return "";
}

}  // namespace lockstep::launch
