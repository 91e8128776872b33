// Saving and loading beside what memory and disk can do, in turns in the same run.
//
//   build/bin/bench_checkpoint FOLDER [--ranks 4] [--rounds 7] [--layers 9] [--width 512]
//                              [--shard none]
//
// Ranks are threads of this process. Of each round: "copy" is memcpy of the bytes that a rank
// saves, all ranks at once, "pause" what an asynchronous save takes of training; "disk" is write
// and fsync of the same bytes by as many threads, a file each, "write" that of the part files with
// their digests; "save" from its begin to the checkpoint being complete; "read" is the bytes of a
// load by plain reads, "load" the load. Loads find the files in the page cache.

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/memory/counting_allocator.h"
#include "lockstep/net/world.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/torch_inside/gemm_counter.h"
#include "lockstep/train/checkpoint_load.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/data_groups.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

struct Arguments {
  std::string folder;
  std::string shard = "none";
  int ranks = 4;
  int rounds = 7;
  int64_t layers = 9;
  int64_t width = 512;
};

Arguments parsed(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word[0] != '-' && arguments.folder.empty()) {
      arguments.folder = word;
      continue;
    }
    if (i + 1 == argc) throw UsageError(base::str(word, " wants a value"));
    const std::string value = argv[++i];
    if (word == "--shard") {
      arguments.shard = value;
      continue;
    }
    const int64_t number = std::atoll(value.c_str());
    if (word == "--ranks")
      arguments.ranks = static_cast<int>(number);
    else if (word == "--rounds")
      arguments.rounds = static_cast<int>(number);
    else if (word == "--layers")
      arguments.layers = number;
    else if (word == "--width")
      arguments.width = number;
    else
      throw UsageError("unknown argument " + word + ": see the head of bench/checkpoint.cpp");
  }
  if (arguments.folder.empty()) throw UsageError("which folder? bench_checkpoint FOLDER");
  return arguments;
}

plan::TrainConfig config_of(const Arguments& arguments) {
  plan::TrainConfig config = plan::preset("nano");
  config.model.layers = arguments.layers;
  config.model.width = arguments.width;
  config.model.heads = 8;
  config.model.context = 32;
  config.data.global_batch = arguments.ranks;
  config.data.micro_batch = 1;
  config.numerics.grains = arguments.ranks;
  config.parallel.shard = arguments.shard;
  config.comm.engine = "threads";
  return config;
}

using Times = std::map<std::string, std::vector<double>>;  // seconds of each round

/// What all ranks do at once takes as long as the slowest.
class Stopwatch {
 public:
  Stopwatch(ProcessGroup& world, Times& times) : world_(world), times_(times) {}

  void time(const std::string& name, const std::function<void()>& action) {
    world_.barrier();
    const auto start = std::chrono::steady_clock::now();
    action();
    add(name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  void add(const std::string& name, double seconds) {
    double slowest = 0;
    for (const std::string& text : world_.gather_text(std::to_string(seconds))) {
      slowest = std::max(slowest, std::atof(text.c_str()));
    }
    if (world_.rank() == 0) times_[name].push_back(slowest);
  }

 private:
  ProcessGroup& world_;
  Times& times_;
};

void require(bool done, const std::string& what) {
  if (!done) throw StateError(base::str("cannot ", what, ": ", std::strerror(errno)));
}

void write_and_sync(const std::string& path, const std::vector<float>& values) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  require(fd >= 0, "create " + path);
  const char* at = reinterpret_cast<const char*>(values.data());
  for (size_t left = values.size() * 4; left > 0;) {
    const ssize_t n = write(fd, at, std::min<size_t>(left, 4 * MiB));
    require(n > 0, "write " + path);
    at += n;
    left -= static_cast<size_t>(n);
  }
  require(fsync(fd) == 0, "sync " + path);
  close(fd);
}

/// All of a checkpoint's part files, or until as many bytes as a rank loads.
void read_plainly(const std::string& folder, int64_t bytes, std::vector<float>& into) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    require(fd >= 0, "open " + entry.path().string());
    while (bytes > 0) {
      const ssize_t n = read(fd, into.data(), std::min<size_t>(into.size() * 4, 4 * MiB));
      require(n >= 0, "read " + entry.path().string());
      if (n == 0) break;
      bytes -= n;
    }
    close(fd);
  }
}

struct Sizes {
  int64_t saved = 0;            // by all ranks
  std::vector<int64_t> loaded;  // by each
};

void measure_rank(const Arguments& arguments, const plan::TrainConfig& config,
                  const std::shared_ptr<net::Group>& net_world, Times& times, Sizes& sizes) {
  const std::string run = arguments.folder + "/run";
  const int console = open("/dev/null", O_WRONLY | O_CLOEXEC);
  Trainer trainer({.config = config, .run_folder = run, .console_fd = console},
                  net_world->endpoint());
  RankContext context;
  context.world = std::make_shared<ProcessGroup>(net_world);
  const plan::RankPlace place = plan::place_in(config, net_world->size(), net_world->rank());
  make_groups(context, plan::shard_options_of(config, net_world->size()), place);
  Checkpointer saver({.async = true}, trainer.state(), nullptr, context);
  saver.reserve();
  const auto elements = static_cast<size_t>(saver.copy_bytes() / 4);
  std::vector<float> from(elements, 1.0F);
  std::vector<float> into(elements, 2.0F);
  Stopwatch watch(*context.world, times);
  const std::string own_file = base::str(arguments.folder, "/disk_", net_world->rank());
  int64_t loaded = 0;
  for (int round = 0; round < arguments.rounds; ++round) {
    const std::string folder =
        checkpoints::checkpoints_of(run) + "/" + checkpoints::folder_name(round);
    watch.time("copy", [&] { std::memcpy(into.data(), from.data(), elements * 4); });
    watch.time("disk", [&] { write_and_sync(own_file, from); });
    unlink(own_file.c_str());
    watch.time("save", [&] {
      saver.save(folder, {.step = round,
                          .config = config,
                          .vocab = plan::resolved_vocab(config),
                          .identity = "bench",
                          .state = nlohmann::json::object(),
                          .rank_state = {}});
      saver.finish();
    });
    watch.add("pause", saver.times().pause_seconds);
    watch.add("write", saver.times().write_seconds);
    watch.time("load", [&] {
      loaded = load_checkpoint(folder, trainer.state(), nullptr, context).bytes_read;
    });
    watch.time("read", [&] { read_plainly(folder, loaded, into); });
    if (net_world->rank() == 0) std::filesystem::remove_all(folder);
  }
  const auto texts = context.world->gather_text(std::to_string(saver.copy_bytes()));
  const auto loads = context.world->gather_text(std::to_string(loaded));
  if (net_world->rank() == 0) {
    for (const std::string& text : texts) sizes.saved += std::atoll(text.c_str());
    for (const std::string& text : loads) sizes.loaded.push_back(std::atoll(text.c_str()));
  }
  context.world->barrier();
  close(console);
}

/// Least, median, most.
std::string spread(std::vector<double> values, double scale, int digits) {
  std::sort(values.begin(), values.end());
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << scale * values.front() << " / "
       << scale * values[values.size() / 2] << " / " << scale * values.back();
  return text.str();
}

std::vector<double> ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> of;
  for (size_t i = 0; i < a.size(); ++i) of.push_back(a[i] / b[i]);
  return of;
}

void measure(const Arguments& arguments) {
  const plan::TrainConfig config = config_of(arguments);
  std::filesystem::create_directories(arguments.folder + "/run");
  Times times;
  Sizes sizes;
  net::run_on_threads(arguments.ranks, [&](const std::shared_ptr<net::Group>& world) {
    measure_rank(arguments, config, world, times, sizes);
  });
  std::cout << arguments.ranks << " ranks, " << arguments.shard << ": "
            << base::with_commas(sizes.saved) << " bytes saved, "
            << base::with_commas(sizes.loaded.front()) << " loaded by rank 0, " << arguments.rounds
            << " rounds\nms: least / median / most\n";
  for (const char* name : {"copy", "pause", "disk", "write", "save", "read", "load"}) {
    std::cout << "  " << std::left << std::setw(8) << name << spread(times[name], 1e3, 1) << "\n";
  }
  const double median_write = [&] {
    std::vector<double> all = times["write"];
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }();
  std::cout << "  pause over copy   " << spread(ratio(times["pause"], times["copy"]), 1, 2)
            << "\n  disk over write   " << spread(ratio(times["disk"], times["write"]), 1, 2)
            << "\n  load over read    " << spread(ratio(times["load"], times["read"]), 1, 2)
            << "\n  written at " << std::fixed << std::setprecision(2)
            << 1e-9 * static_cast<double>(sizes.saved) / median_write << " GB/s\n";
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);
    lockstep::memory::install_counting_allocator();
    lockstep::torch_inside::install_gemm_counter();
    lockstep::measure(lockstep::parsed(argc, argv));
  } catch (const lockstep::Error& error) {
    std::cerr << "bench_checkpoint: " << error.what() << "\n";
    return error.exit_code();
  }
}
