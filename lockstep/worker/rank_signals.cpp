#include "lockstep/worker/rank_signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/base/str.h"
#include "lockstep/worker/thread_stacks.h"

namespace lockstep::worker {
namespace {

Requests requests;

void request_stop(int) { requests.stop.store(true); }
void request_save(int) { requests.saves.fetch_add(1); }

void install(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

// ---- dumps

struct Told {
  std::mutex mutex;  // guards the rest
  std::shared_ptr<net::Region> region;
  std::vector<int> ranks;
};

/// Never destroyed: a dump may be asked for while the process leaves.
Told& told() {
  static Told& all = *new Told;
  return all;
}

int bell = -1;  // the write end of a pipe; a byte asks ls-signals for a dump

void on_dump_request(int, siginfo_t* info, void*) {
  const int before = errno;
  if (!answer_with_stack(*info)) [[maybe_unused]]
    const auto rung = write(bell, "", 1);
  errno = before;
}

std::string place_of(const net::Region& region, int rank) {
  const net::RankStatus status = region.status(rank);
  std::string text = base::str("[rank ", rank, " of ", region.ranks(), "] SIGUSR2: in ",
                               status.phase.empty() ? "start" : status.phase);
  if (!status.detail.empty()) text += base::str(" (", status.detail, ")");
  if (status.step >= 0) text += base::str(" of step ", status.step);
  const std::vector<std::string> pending = region.pending_calls(rank);
  text += pending.empty() ? "; it waits for no peer.\n" : ".\n";
  for (const std::string& call : pending) text += "  waits in " + call + "\n";
  return text;
}

void write_dump() {
  std::string text;
  {
    const std::lock_guard lock(told().mutex);
    for (const int rank : told().ranks) text += place_of(*told().region, rank);
  }
  if (text.empty())
    text = base::str("[process ", getpid(), "] SIGUSR2: not among its ranks yet.\n");
  text += stacks_of_all_threads(SIGUSR2);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t done = write(STDERR_FILENO, rest.data(), rest.size());
    if (done < 0 && errno != EINTR) return;
    if (done > 0) rest.remove_prefix(static_cast<size_t>(done));
  }
}

void serve_dumps(int pipe) {
  pthread_setname_np(pthread_self(), "ls-signals");
  std::array<char, 64> rings;  // several that came at once are one request
  for (;;) {
    const ssize_t got = read(pipe, rings.data(), rings.size());
    if (got > 0) write_dump();
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

}  // namespace

const Requests& catch_requests() {
  install(SIGTERM, request_stop);
  install(SIGINT, request_stop);
  install(SIGUSR1, request_save);
  return requests;
}

void dump_on_request() {
  struct sigaction present {};
  std::array<int, 2> ends{};
  if (bell >= 0 || sigaction(SIGUSR2, nullptr, &present) != 0) return;
  if (present.sa_handler != SIG_DFL || pipe2(ends.data(), O_CLOEXEC) != 0) return;
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  bell = ends[1];
  prepare_stacks();
  // Lives as long as the process: it waits for a pipe that nobody closes.
  std::thread(serve_dumps, ends[0]).detach();
  struct sigaction action {};
  action.sa_sigaction = on_dump_request;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
}

void tell_in_dumps(std::shared_ptr<net::Region> region, std::vector<int> ranks) {
  const std::lock_guard lock(told().mutex);
  told().region = std::move(region);
  told().ranks = std::move(ranks);
}

}  // namespace lockstep::worker
