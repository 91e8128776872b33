/// A training run small enough for a test, on ranks that are threads, through the real Trainer.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/counter_random.h"
#include "lockstep/net/world.h"
#include "lockstep/train/trainer.h"
#include "tests/support/temp_folder.h"

namespace lockstep::testing {

/// uint16 tokens with some structure to learn, ids below 64.
inline void write_tokens(const std::string& path, int64_t count, uint64_t seed) {
  std::ofstream out(path, std::ios::binary);
  const base::RandomKey key(seed);
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t id = static_cast<uint16_t>(
        (i * 7 + static_cast<int64_t>(key.below(static_cast<uint64_t>(i), 3))) % 64);
    out.write(reinterpret_cast<const char*>(&id), 2);
  }
}

class TinyRun {
 public:
  TinyRun() {
    write_tokens(folder_.file("train.bin"), 1500, 1);
    write_tokens(folder_.file("val.bin"), 300, 2);
    config.run.steps = 4;
    config.model.layers = 2;
    config.model.heads = 2;
    config.model.width = 24;
    config.model.context = 11;  // odd on purpose
    config.model.vocab = 67;
    config.data.train = folder_.file("train.bin");
    config.data.valid = folder_.file("val.bin");
    config.data.global_batch = 8;
    config.data.micro_batch = 2;
    config.data.eval_batches = 2;
    config.optim.warmup_steps = 2;
    config.comm.engine = "threads";
    config.comm.timeout_s = 20;
    config.log.every = 1000;
    config.log.eval_every = 0;
    config.log.tensorboard = false;
  }

  /// The summary of a run on `ranks` ranks.
  nlohmann::json run(int ranks) {
    std::string summary;
    run_on(ranks, [&](Trainer& trainer, int) {
      const TrainResult result = trainer.run();
      if (!result.summary.empty()) summary = result.summary;
    });
    return nlohmann::json::parse(summary);
  }

  /// Builds a Trainer on every rank and calls `body` with it.
  void run_on(int ranks, const std::function<void(Trainer&, int rank)>& body,
              const std::function<const std::atomic<bool>*(int rank)>& stop_of = {}) {
    const TempFolder out;
    net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
      Trainer trainer({.config = config,
                       .run_folder = out.path(),
                       .console_fd = quiet_.fd,
                       .stop_requested = stop_of ? stop_of(world->rank()) : nullptr},
                      world->endpoint());
      body(trainer, world->rank());
    });
  }

  /// Where a trainer's console goes: nowhere.
  int silent() const { return quiet_.fd; }

  plan::TrainConfig config;

 private:
  /// Progress of test runs goes nowhere.
  struct Quiet {
    ~Quiet() { ::close(fd); }
    int fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  };

  TempFolder folder_;
  Quiet quiet_;
};

}  // namespace lockstep::testing
