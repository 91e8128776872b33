// AdamW streamed through a file beside the device's own speed, in turns on the same file.
//
//   build/bin/bench_offload FOLDER [--millions 64] [--rounds 7] [--elements N] [--blocks N]
//                           [--masters] [--threads]
//
// "device" reads and writes what a step does by plain calls of pread and pwrite, four threads with
// 8 MiB each: as fast as the file goes without a thing to compute. "streamed" is
// StreamedAdamW::step with all its transfers done. With --masters the masters are in the file, too.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/aligned_buffer.h"
#include "lockstep/files/block_file.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/streamed_adamw.h"

namespace {

using lockstep::MiB;
using lockstep::files::AlignedBuffer;
using lockstep::files::BlockFile;

struct Arguments {
  std::string folder;
  int64_t millions = 64;
  int rounds = 7;
  lockstep::optim::StreamOptions stream;
  bool masters = false;
  bool threads = false;
};

Arguments parsed(int argc, char** argv) {
  Arguments arguments;
  const auto number = [&](int& i) {
    if (i + 1 == argc) throw lockstep::UsageError(lockstep::base::str(argv[i], " wants a number"));
    return std::atoll(argv[++i]);
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--millions")
      arguments.millions = number(i);
    else if (word == "--rounds")
      arguments.rounds = static_cast<int>(number(i));
    else if (word == "--elements")
      arguments.stream.block_elements = number(i);
    else if (word == "--blocks")
      arguments.stream.blocks = static_cast<int>(number(i));
    else if (word == "--masters")
      arguments.masters = true;
    else if (word == "--threads")
      arguments.threads = true;
    else if (word[0] != '-' && arguments.folder.empty())
      arguments.folder = word;
    else
      throw lockstep::UsageError("unknown argument " + word +
                                 ": see the head of bench/offload.cpp");
  }
  if (arguments.folder.empty()) throw lockstep::UsageError("which folder? bench_offload FOLDER");
  return arguments;
}

double seconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Reads and writes all of the file once, chunk by chunk, as four threads come to them.
void sweep(int descriptor, int64_t bytes, std::vector<AlignedBuffer>& buffers) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (AlignedBuffer& buffer : buffers) {
    threads.emplace_back([&] {
      for (int64_t at = next.fetch_add(buffer.bytes()); at < bytes && !failed;
           at = next.fetch_add(buffer.bytes())) {
        const int64_t size = std::min(buffer.bytes(), bytes - at);
        const auto count = static_cast<size_t>(size);
        if (pread(descriptor, buffer.data(), count, at) != size) failed = true;
        if (pwrite(descriptor, buffer.data(), count, at) != size) failed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed) throw lockstep::StateError("a plain read or write of the file was short");
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << values.front() << " / " << values[values.size() / 2]
       << " / " << values.back();
  return text.str();
}

void measure(const Arguments& arguments) {
  const int64_t elements = arguments.millions * 1'000'000 / 1024 * 1024;
  const int64_t master_bytes = arguments.masters ? 4 * elements : 0;
  const int64_t bytes =
      master_bytes + lockstep::optim::StreamedAdamW::moment_bytes(elements, arguments.stream);
  using Engine = lockstep::files::BlockFileOptions::Engine;
  BlockFile file(arguments.folder, bytes,
                 {.engine = arguments.threads ? Engine::threads : Engine::automatic});
  const std::vector<float> gradient(static_cast<size_t>(elements), 0.01f);
  std::vector<float> master(static_cast<size_t>(arguments.masters ? 0 : elements), 1.0f);
  lockstep::optim::StreamedSpan span{.master = master.empty() ? nullptr : master.data(),
                                     .gradient = gradient.data(),
                                     .count = elements,
                                     .decay = true};
  lockstep::optim::StreamedAdamW updater(file, master_bytes, {}, {span}, arguments.stream);
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.emplace_back(8 * MiB);
    std::memset(buffers.back().data(), 0, 8 * MiB);
  }
  sweep(file.descriptor(), bytes,
        buffers);  // the first writes of a file are slower than later ones
  updater.step(1e-3, 1);
  file.settle();
  std::vector<double> device;
  std::vector<double> streamed;
  std::vector<double> ratio;
  for (int round = 0; round < arguments.rounds; ++round) {
    const double gigabytes = 2 * static_cast<double>(bytes) / 1e9;
    device.push_back(gigabytes / seconds_of([&] { sweep(file.descriptor(), bytes, buffers); }));
    streamed.push_back(gigabytes / seconds_of([&] {
                         updater.step(1e-3, 1);
                         file.settle();
                       }));
    ratio.push_back(streamed.back() / device.back());
  }
  // What of a step no device could hide.
  std::vector<float> weights(static_cast<size_t>(elements), 1.0f);
  lockstep::optim::AdamW in_memory({}, {{weights.data(), gradient.data(), elements, true}});
  in_memory.step(1e-3, 1);
  const double kernel = seconds_of([&] { in_memory.step(1e-3, 1); });

  std::cout << file.description() << "\n"
            << elements << " parameters, blocks of " << arguments.stream.block_elements << " x "
            << arguments.stream.blocks << " (" << lockstep::base::bytes_text(updater.state_bytes())
            << " of memory), " << arguments.rounds << " rounds in turns\n"
            << "GB/s, read and written: least / median / most\n"
            << "  device    " << spread(device) << "\n  streamed  " << spread(streamed)
            << "\n  streamed over device  " << spread(ratio) << "\n"
            << "AdamW in memory would take " << std::fixed << std::setprecision(3) << kernel
            << " s a step; through the file it took "
            << 2e-9 * static_cast<double>(bytes) / median(streamed) << " s\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    measure(parsed(argc, argv));
  } catch (const lockstep::Error& error) {
    std::cerr << "bench_offload: " << error.what() << "\n";
    return error.exit_code();
  }
}
