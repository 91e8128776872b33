// A loop of one's own, saved and gone on with.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/net/world.h"
#include "lockstep/train/training.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::TempFolder;

/// An embedding of 7 rows of 3, which 4 ranks divide unevenly, and what makes a number of it.
struct Words : torch::nn::Module {
  Words() {
    table = register_module("table", torch::nn::Embedding(7, 3));
    out = register_module("out", torch::nn::Linear(3, 1));
  }
  at::Tensor forward(const at::Tensor& ids) { return out(torch::tanh(table(ids))).squeeze(-1); }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear out{nullptr};
};

struct WordData : torch::data::datasets::Dataset<WordData> {
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    const at::Tensor ids = torch::tensor({i % 7, i * 3 % 7, i * 5 % 7}, torch::kLong);
    return {ids, ids.to(torch::kFloat) * 0.1f};
  }
  c10::optional<size_t> size() const override { return 29; }
};

const TrainingOptions kOptions{.global_batch = 8, .micro_batch = 2, .grains = 4};

struct Loop {
  Loop(const std::shared_ptr<net::Group>& world, Shard shard)
      : training(std::make_shared<ProcessGroup>(world), with(shard)),
        net(training.build<Words>()),
        optimizer(training.adamw(net, {.lr = 1e-2})) {}

  static TrainingOptions with(Shard shard) {
    TrainingOptions options = kOptions;
    options.shard = shard;
    return options;
  }

  void steps(int count) {
    for (auto& step : training.steps(data, count)) {
      for (auto& mb : step) {
        step.backward((net->forward(mb.x) - mb.y).square().sum(), mb.tokens);
      }
      optimizer.step(step);
    }
  }

  Training training;
  std::shared_ptr<Words> net;
  TrainingOptimizer optimizer;
  WordData data;
};

void on(int ranks, Shard shard, const std::function<void(Loop&, int rank)>& body) {
  net::run_on_threads(ranks, [&](const std::shared_ptr<net::Group>& world) {
    Loop loop(world, shard);
    body(loop, world->rank());
  });
}

std::string unbroken(int steps) {
  std::string digest;
  on(1, Shard::none, [&](Loop& loop, int) {
    loop.steps(steps);
    digest = loop.training.digest();
  });
  return digest;
}

TEST(TrainingCheckpoint, ZERO_3_AnUnevenEmbeddingGoesOnWithTheBitsOfTheUnbrokenRun) {
  const std::string wanted = unbroken(20);
  for (const Shard shard : {Shard::none, Shard::zero1, Shard::zero2, Shard::zero3}) {
    const TempFolder folder;
    on(4, shard, [&](Loop& loop, int) {
      loop.steps(10);
      loop.training.save(folder.file("ckpt"));
    });
    on(4, shard, [&](Loop& loop, int) {
      loop.training.load(folder.file("ckpt"));
      loop.steps(10);
      EXPECT_EQ(loop.training.digest(), wanted) << static_cast<int>(shard);
    });
  }
}

/// Ten elements on three ranks: padding of a shard is nobody's state.
TEST(TrainingCheckpoint, ZERO_2_MomentsAreTheSameAtEveryWorldSize) {
  const std::string wanted = unbroken(6);
  const TempFolder folder;
  on(3, Shard::zero1, [&](Loop& loop, int) {
    loop.steps(5);
    loop.training.save(folder.file("three"));
  });
  const checkpoints::Reader saved(folder.file("three"));
  for (const int ranks : {1, 2, 4}) {
    const std::string again = folder.file(std::to_string(ranks));
    on(ranks, ranks == 1 ? Shard::none : Shard::zero3, [&](Loop& loop, int) {
      loop.training.load(folder.file("three"));
      EXPECT_EQ(loop.training.state().optimizer().steps_taken(), 5);
      loop.training.save(again);
      loop.steps(1);
      EXPECT_EQ(loop.training.digest(), wanted) << ranks;
    });
    const checkpoints::Reader resaved(again);
    ASSERT_EQ(saved.index().tensors.size(), resaved.index().tensors.size());
    for (const checkpoints::SavedTensor& tensor : saved.index().tensors) {
      const auto count = tensor.numel();
      std::vector<float> was(static_cast<size_t>(count));
      std::vector<float> is(was.size());
      saved.read_logical(tensor.kind, tensor.name, 0, count, was.data());
      resaved.read_logical(tensor.kind, tensor.name, 0, count, is.data());
      EXPECT_EQ(was, is) << tensor.kind << " " << tensor.name << " on " << ranks;
    }
  }
}

/// The copy is of the moment of the call: steps that follow at once do not reach it.
TEST(TrainingCheckpoint, CKPT_2_AnAsynchronousSaveHoldsTheMomentOfTheCall) {
  const std::string wanted = unbroken(6);
  for (const Shard shard : {Shard::none, Shard::zero3}) {
    const TempFolder folder;
    on(2, shard, [&](Loop& loop, int) {
      loop.steps(3);
      loop.training.save(folder.file("ckpt"), {.async = true});
      loop.steps(2);
      loop.training.finish_saving();
    });
    EXPECT_EQ(checkpoints::read_manifest(folder.file("ckpt")).step, 3);
    on(3, shard, [&](Loop& loop, int) {
      loop.training.load(folder.file("ckpt"));
      loop.steps(3);
      EXPECT_EQ(loop.training.digest(), wanted);
    });
  }
}

/// State that moves to a file and back between two saves: the second holds what is there then.
TEST(TrainingCheckpoint, CKPT_3_EachSaveHoldsTheLiveMoments) {
  const TempFolder folder;
  net::run_on_threads(2, [&](const std::shared_ptr<net::Group>& world) {
    TrainingOptions options = kOptions;
    options.shard = Shard::zero1;
    options.offload.optimizer = true;
    options.offload_folder = folder.path();
    Training t(std::make_shared<ProcessGroup>(world), options);
    auto net = t.build<Words>();
    auto optimizer = t.adamw(net, {.lr = 1e-2});
    WordData data;
    for (const char* name : {"first", "second"}) {
      for (auto& step : t.steps(data, 1)) {
        for (auto& mb : step) {
          step.backward((net->forward(mb.x) - mb.y).square().sum(), mb.tokens);
        }
        optimizer.step(step);
      }
      t.save(folder.file(name), {.async = true});
    }
    t.finish_saving();
  });
  const checkpoints::Reader first(folder.file("first"));
  const checkpoints::Reader second(folder.file("second"));
  for (const char* kind : {"exp_avg", "exp_avg_sq", "param"}) {
    std::vector<float> was(21);
    std::vector<float> is(21);
    first.read_logical(kind, "table.weight", 0, 21, was.data());
    second.read_logical(kind, "table.weight", 0, 21, is.data());
    EXPECT_NE(was, is) << kind;
  }
  on(1, Shard::none, [&](Loop& loop, int) {
    loop.steps(2);
    loop.training.save(folder.file("live"));
  });
  const checkpoints::Reader live(folder.file("live"));
  std::vector<float> is(21);
  std::vector<float> should(21);
  second.read_logical("exp_avg_sq", "table.weight", 0, 21, is.data());
  live.read_logical("exp_avg_sq", "table.weight", 0, 21, should.data());
  EXPECT_EQ(is, should);
}

TEST(TrainingCheckpoint, CKPT_4_EachRankGetsItsOwnGeneratorBack) {
  const TempFolder folder;
  std::vector<double> before(4);
  const auto draw = [](at::Generator& generator) {
    return torch::rand({1}, generator, torch::kDouble).item<double>();
  };
  on(4, Shard::none, [&](Loop& loop, int rank) {
    at::Generator own = at::detail::createCPUGenerator(99);
    loop.training.keep_generator("augment", own);
    for (int i = 0; i <= rank; ++i) draw(own);
    loop.training.save(folder.file("ckpt"));
    before[static_cast<size_t>(rank)] = draw(own);
  });
  std::vector<double> sorted = before;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
  on(4, Shard::zero3, [&](Loop& loop, int rank) {
    at::Generator own = at::detail::createCPUGenerator(1);
    loop.training.keep_generator("augment", own);
    loop.training.load(folder.file("ckpt"));
    EXPECT_EQ(draw(own), before[static_cast<size_t>(rank)]) << rank;
  });
  on(2, Shard::none, [&](Loop& loop, int) {
    at::Generator own = at::detail::createCPUGenerator(1);
    loop.training.keep_generator("augment", own);
    EXPECT_THROW(loop.training.load(folder.file("ckpt")), UsageError);
    loop.training.load(folder.file("ckpt"), {.forget_generators = true});
  });
}

TEST(TrainingCheckpoint, RefusesAnotherBatchSeedOptimizerOrData) {
  const TempFolder folder;
  on(2, Shard::none, [&](Loop& loop, int) {
    loop.steps(1);
    loop.training.save(folder.file("ckpt"));
  });
  net::run_on_threads(2, [&](const std::shared_ptr<net::Group>& world) {
    const auto with = [&](TrainingOptions options, const optim::OptimizerOptions& optimizer) {
      Training t(std::make_shared<ProcessGroup>(world), options);
      auto net = t.build<Words>();
      t.optimizer(net, optimizer);
      t.load(folder.file("ckpt"));
    };
    TrainingOptions other = kOptions;
    other.micro_batch = 1;
    EXPECT_THROW(with(other, optim::AdamWOptions{}), UsageError);
    other = kOptions;
    other.seed = 3;
    EXPECT_THROW(with(other, optim::AdamWOptions{}), UsageError);
    EXPECT_THROW(with(kOptions, optim::SgdOptions{}), UsageError);
  });
  struct Fewer : WordData {
    c10::optional<size_t> size() const override { return 28; }
  };
  on(1, Shard::none, [&](Loop& loop, int) {
    loop.training.load(folder.file("ckpt"));
    Fewer fewer;
    EXPECT_THROW(loop.training.steps(fewer, 1), UsageError);
  });
}

/// Saved again at the same place: the new one is there, whole.
TEST(TrainingCheckpoint, ASecondSaveReplacesTheFirst) {
  const TempFolder folder;
  on(2, Shard::zero1, [&](Loop& loop, int) {
    loop.steps(1);
    loop.training.save(folder.file("ckpt"));
    loop.steps(1);
    loop.training.save(folder.file("ckpt"));
  });
  const checkpoints::Reader reader(folder.file("ckpt"));
  reader.verify();
  EXPECT_EQ(reader.manifest().step, 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace lockstep
