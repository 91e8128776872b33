#include "lockstep/worker/thread_stacks.h"

#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep::worker {
namespace {

using namespace std::chrono_literals;

constexpr int kMostFrames = 64;
constexpr int kFramesOfTheHandler = 3;  // answer_with_stack, the handler, the kernel's return
constexpr auto kTimeToAnswer = 500ms;

// Whose turn it is: its number, minus that while it notes its frames, 0 when they are there.
std::atomic<int> turn{0};
std::array<void*, kMostFrames> frames;  // written by the thread whose turn it is
int frame_count = 0;

int own_thread() { return static_cast<int>(syscall(SYS_gettid)); }

std::vector<int> all_threads() {
  std::vector<int> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/task"), closedir);
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const int thread = std::atoi(entry->d_name);
    if (thread > 0) threads.push_back(thread);
  }
  return threads;
}

std::string first_line_of(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

/// "4711 (lockstep-worker), sleeping"
std::string title_of(int thread) {
  const std::string folder = base::str("/proc/self/task/", thread);
  const std::string stat = first_line_of(folder + "/stat");
  const size_t end = stat.rfind(')');
  const char state = end + 2 < stat.size() ? stat[end + 2] : '?';
  const char* word = state == 'R' ? "running" : state == 'S' ? "sleeping" : "in the kernel";
  return base::str(thread, " (", first_line_of(folder + "/comm"), "), ", word);
}

std::string name_of(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return base::str(address);
  const std::string file = info.dli_fname != nullptr ? info.dli_fname : "?";
  const std::string module = file.substr(file.rfind('/') + 1);
  const auto from = [address](void* start) {
    return static_cast<char*>(address) - static_cast<char*>(start);
  };
  std::array<char, 24> offset{};
  if (info.dli_sname == nullptr) {
    // For addr2line, which wants the place in the file.
    std::snprintf(offset.data(), offset.size(), "+0x%lx", static_cast<long>(from(info.dli_fbase)));
    return base::str(module, offset.data());
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), std::free);
  std::snprintf(offset.data(), offset.size(), "+0x%lx", static_cast<long>(from(info.dli_saddr)));
  return base::str(readable ? readable.get() : info.dli_sname, offset.data(), " (", module, ")");
}

/// Waits until the thread has noted its frames; false if it has not even begun in time.
bool wait_for_answer(int thread) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeToAnswer;
  while (turn.load(std::memory_order_acquire) != 0) {
    int expected = thread;
    // Once a thread has begun it needs microseconds, and the frames are its own until it is done.
    if (std::chrono::steady_clock::now() > deadline && turn.compare_exchange_strong(expected, 0)) {
      return false;
    }
    std::this_thread::sleep_for(100us);
  }
  return true;
}

}  // namespace

void prepare_stacks() {
  // The first call loads the unwinder, which a handler must not do.
  std::array<void*, 1> warm_up;
  backtrace(warm_up.data(), 1);
}

bool answer_with_stack(const siginfo_t& info) {
  if (info.si_code != SI_TKILL || info.si_pid != getpid()) return false;
  const int self = own_thread();
  int expected = self;
  if (!turn.compare_exchange_strong(expected, -self)) return true;  // too late
  frame_count = backtrace(frames.data(), kMostFrames);
  turn.store(0, std::memory_order_release);
  return true;
}

std::string stacks_of_all_threads(int signal) {
  std::string text;
  for (const int thread : all_threads()) {
    if (thread == own_thread()) continue;
    const std::string title = title_of(thread);
    turn.store(thread, std::memory_order_release);
    if (syscall(SYS_tgkill, getpid(), thread, signal) != 0) {
      turn.store(0);  // it has ended meanwhile
      continue;
    }
    if (!wait_for_answer(thread)) {
      text += base::str("  thread ", title, ": no answer\n");
      continue;
    }
    text += base::str("  thread ", title, ":\n");
    for (int i = kFramesOfTheHandler; i < frame_count; ++i) {
      text += base::str("    #", i - kFramesOfTheHandler, " ",
                        name_of(frames[static_cast<size_t>(i)]), "\n");
    }
  }
  return text;
}

}  // namespace lockstep::worker
