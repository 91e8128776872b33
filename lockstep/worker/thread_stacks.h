/// Where every thread of this process is at the moment, for a person who asks why it does not go
/// on.
///
/// Each thread in turn is sent a signal and notes its own frames in the handler, which takes no
/// lock and allocates nothing; names are found afterwards, by the caller. A thread that does not
/// answer in half a second (it blocks the signal, or the kernel does not let it run) is named
/// without its stack. Threads go on where they were.
#pragma once

#include <csignal>
#include <string>

namespace lockstep::worker {

/// To be called once before the other two, and before the handler of `signal` may run.
void prepare_stacks();

/// To be called by the handler of `signal`, which is installed with SA_SIGINFO | SA_RESTART. True:
/// the signal was sent by `stacks_of_all_threads` and has been answered.
bool answer_with_stack(const siginfo_t& info);

/// One thread at a time calls it, from outside any handler. "thread 4711 (ls-comm-dp), sleeping:",
/// then a frame a line; the caller itself is left out.
std::string stacks_of_all_threads(int signal);

}  // namespace lockstep::worker
