/// A Trainer's state on every rank, as threads, for a Checkpointer of the test's own.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/memory/account.h"
#include "lockstep/plan/run_layout.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/data_groups.h"
#include "tests/train/tiny_run.h"

namespace lockstep::testing {

/// One rank of it. Its own account counts from zero.
class SavingRank {
 public:
  SavingRank(const plan::TrainConfig& config, const std::string& run, int console,
             const std::shared_ptr<net::Group>& world)
      : config_(config), run_(run), scope_(account) {
    trainer = std::make_unique<Trainer>(
        TrainerOptions{.config = config, .run_folder = run, .console_fd = console},
        world->endpoint());
    context.world = std::make_shared<ProcessGroup>(world);
    const plan::RankPlace place = plan::place_in(config, world->size(), world->rank());
    make_groups(context, plan::shard_options_of(config, static_cast<int>(place.dp.size())), place);
    if (config.optim.ema > 0) {
      average = std::make_unique<ParamAverage>(trainer->state(), config.optim.ema);
    }
    account.reset_peaks();
  }
  ~SavingRank() {
    saver.reset();
    average.reset();
    trainer.reset();
    account.close();
  }

  int rank() const { return context.world->rank(); }
  int size() const { return context.world->size(); }
  std::string folder(int64_t step) const {
    return checkpoints::checkpoints_of(run_) + "/" + checkpoints::folder_name(step);
  }

  void open(const CheckpointerOptions& options) {
    saver = std::make_unique<Checkpointer>(options, trainer->state(), average.get(), context);
  }
  void save(int64_t step) {
    saver->save(folder(step), {.step = step,
                               .config = config_,
                               .vocab = config_.model.vocab,
                               .identity = "a test's",
                               .state = nlohmann::json::object(),
                               .rank_state = {}});
  }
  /// What `action` throws as a StateError; empty: nothing.
  static std::string failure_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const StateError& error) {
      return error.what();
    }
    return "";
  }
  /// A save from begin to end, or why not.
  std::string try_to_save(int64_t step) {
    return failure_of([&] {
      save(step);
      saver->finish();
    });
  }
  /// Other values than before, as of a training step. All ranks call it.
  void train() {
    state::ParamStore& params = trainer->params();
    for (const plan::Piece& piece : params.pieces()) {
      float* const values = params.master(piece);
      for (int64_t i = 0; i < piece.size(); ++i) values[i] += 0.25F;
    }
    trainer->state().publish();
  }

  memory::Account& account = memory::Account::open();
  RankContext context;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<ParamAverage> average;
  std::unique_ptr<Checkpointer> saver;

 private:
  const plan::TrainConfig& config_;
  std::string run_;
  memory::AccountScope scope_;
};

/// A run whose ranks save when a test says so.
class SavingRun : public TinyRun {
 public:
  void on(int ranks, const std::function<void(SavingRank&)>& body) {
    net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
      SavingRank rank(config, folder(), silent(), world);
      body(rank);
      rank.context.world->barrier();
    });
  }
  /// The whole of it, by Trainers, in `folder()`: the error that each rank's ended with, its own or
  /// a peer's that it quotes; empty: none.
  std::vector<std::string> train(int ranks) {
    std::vector<std::string> failures(static_cast<size_t>(ranks));
    net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
      Trainer trainer({.config = config, .run_folder = folder(), .console_fd = silent()},
                      world->endpoint());
      try {
        trainer.run();
      } catch (const Error& error) {
        failures[static_cast<size_t>(world->rank())] = error.what();
      }
    });
    return failures;
  }
  /// Of the run: it holds "checkpoints".
  std::string folder() const { return run_.path(); }
  std::string checkpoints() const { return checkpoints::checkpoints_of(folder()); }

 private:
  TempFolder run_;
};

/// Every checkpoint that is listed is whole, of one step and one run; nothing unfinished is left.
inline void expect_whole(const std::string& run_folder) {
  for (const checkpoints::Found& found : checkpoints::complete_checkpoints(run_folder)) {
    try {
      const checkpoints::Reader reader(found.folder);
      reader.verify();
      EXPECT_EQ(reader.manifest().step, found.step);
    } catch (const StateError& error) {
      ADD_FAILURE() << error.what();
    }
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(checkpoints::checkpoints_of(run_folder))) {
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

}  // namespace lockstep::testing
