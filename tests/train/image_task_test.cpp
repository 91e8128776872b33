// Pictures through the real Trainer: one result on every layout, running values and all.
#include "lockstep/train/image_task.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/train/detail/augment.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/model_file.h"
#include "lockstep/train/state_copy.h"
#include "tests/train/resumed_run.h"
#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::bits_of;
using testing::TempFolder;
using testing::TinyRun;

constexpr int64_t kRows = 6, kColumns = 5, kClasses = 3;

/// Pictures of a bright row each, whose place is the class, in some noise.
void write_rows(const std::string& path, int64_t count, uint64_t seed) {
  const base::RandomKey key(seed);
  std::string labels, points;
  for (int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<int64_t>(key.with("label").below(static_cast<uint64_t>(i), 3));
    labels += static_cast<char>(label);
    for (int64_t p = 0; p < kRows * kColumns; ++p) {
      const auto noise = static_cast<int64_t>(
          key.with("noise").below(static_cast<uint64_t>(i * kRows * kColumns + p), 100));
      points += static_cast<char>(noise + (p / kColumns == 2 * label ? 150 : 0));
    }
  }
  files::write_pictures(path,
                        {.count = count, .rows = kRows, .columns = kColumns, .classes = kClasses},
                        labels, points);
}

class PictureRun : public TinyRun {
 public:
  explicit PictureRun(const std::string& norm = "batch") {
    write_rows(pictures_.file("train.pictures"), 50, 1);
    write_rows(pictures_.file("val.pictures"), 21, 2);
    const plan::TrainConfig usual;
    config.model = usual.model;
    config.model.family = "resnet";
    config.model.layers = 1;
    config.model.width = 8;
    config.model.norm = norm;
    config.data.train = pictures_.file("train.pictures");
    config.data.valid = pictures_.file("val.pictures");
    config.data.global_batch = 16;
    config.data.micro_batch = 2;
    config.numerics.grains = 4;
    config.data.eval_batches = 100;
    config.data.augment = true;
    config.optim.lr = 1e-2;
  }

 private:
  TempFolder pictures_;
};

/// What must not depend on the layout.
struct Result {
  testing::Bits bits;
  double accuracy;
  bool operator==(const Result&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Result& result) {
  return out << result.bits << " right " << result.accuracy;
}
Result result_of(const nlohmann::json& summary) {
  testing::expect_planned_bytes(summary);
  return {bits_of(summary), summary.at("val_accuracy").get<double>()};
}

class ImageBits : public ::testing::TestWithParam<const char*> {};

TEST_P(ImageBits, OneResultOnEveryLayout) {
  PictureRun run(GetParam());
  const Result alone = result_of(run.run(1));
  for (const char* shard : {"none", "zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = shard;
    for (const int ranks : {2, 3, 4}) {
      EXPECT_EQ(result_of(run.run(ranks)), alone) << ranks << " ranks, " << shard;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Norms, ImageBits, ::testing::Values("batch", "group", "layer"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ImageTask, RecomputeAndEvaluationsLeaveNoTrace) {
  PictureRun run;
  const Result plain = result_of(run.run(2));
  run.config.memory.recompute = "block";
  EXPECT_EQ(result_of(run.run(3)), plain);
  run.config.memory.recompute = "none";
  run.config.log.eval_every = 1;
  EXPECT_EQ(result_of(run.run(2)), plain);
}

/// Controls: what does change a run changes its digest.
TEST(ImageTask, NormAndAugmentAreOtherRuns) {
  PictureRun run;
  const std::string digest = bits_of(run.run(1)).digest;
  run.config.data.augment = false;
  EXPECT_NE(bits_of(run.run(1)).digest, digest);
  run.config.data.augment = true;
  run.config.data.micro_batch = 4;  // of another batch's statistics
  EXPECT_NE(bits_of(run.run(1)).digest, digest);
}

/// With statistics of all ranks the number of ranks is a part of what is computed; how their state
/// is divided is not, where each has one leaf.
TEST(ImageTask, SyncHasOneResultForANumberOfRanks) {
  PictureRun run("sync");
  run.config.data.micro_batch = 4;
  const Result four = result_of(run.run(4));
  EXPECT_EQ(result_of(run.run(4)), four);
  for (const char* shard : {"zero1", "zero2", "zero3"}) {
    run.config.parallel.shard = shard;
    EXPECT_EQ(result_of(run.run(4)), four) << shard;
  }
  run.config.parallel.shard = "none";
  run.config.memory.recompute = "block";
  EXPECT_EQ(result_of(run.run(4)), four) << "recompute";
  run.config.memory.recompute = "none";
  EXPECT_NE(bits_of(run.run(2)).digest, four.bits.digest);
}

/// Four ranks with a quarter of the batch each are one rank with all of it.
TEST(ImageTask, SyncIsTheWholeBatch) {
  PictureRun run("sync");
  run.config.run.steps = 1;
  run.config.data.micro_batch = 4;
  const testing::Bits four = bits_of(run.run(4));
  run.config.model.norm = "batch";
  run.config.data.micro_batch = 16;
  run.config.numerics.grains = 1;
  const testing::Bits one = bits_of(run.run(1));
  EXPECT_NEAR(four.loss, one.loss, 1e-6);
  EXPECT_NEAR(four.grad_norm, one.grad_norm, 1e-5 * one.grad_norm);
  EXPECT_NEAR(four.val_loss, one.val_loss, 1e-4);
}

TEST(ImageTask, TheModelFileHoldsRunningValues) {
  PictureRun run;
  run.run_on(2, [](Trainer& trainer, int rank) {
    const TrainResult trained = trainer.run();
    if (rank != 0) return;
    const nlohmann::json summary = nlohmann::json::parse(trained.summary);
    const std::string path = summary["run"].get<std::string>() + "/final.safetensors";
    const auto weights = checkpoints::open_weights(path);
    const checkpoints::WeightOrigin& info = weights->origin();
    const auto task = ImageTask::open_valid(info.config, info.config.data.valid);
    const auto zeros = [](const std::string&) { return plan::Init{}; };
    state::ParamStore params(task->module(), {}, zeros, {});
    // Half of a model is none.
    EXPECT_THROW(load_parameters(*weights, params), StateError);
    load_parameters(*weights, params, task->running_values());
    double moved = 0;
    for (const NamedTensor& value : task->running_values()) {
      if (!value.name.ends_with("running_mean")) continue;
      moved += value.tensor.abs().sum().item<double>();
    }
    EXPECT_GT(moved, 0);
    // Evaluated alone, it has the figures of the run.
    net::run_on_threads(1, [&](const std::shared_ptr<net::Group>& world) {
      RankContext context;
      context.world = std::make_shared<ProcessGroup>(world);
      const EvaluationResult evaluated =
          evaluate(*task, {.samples = 1000, .micro_batch = info.config.data.micro_batch}, context);
      EXPECT_EQ(evaluated.loss, summary["val_loss"].get<double>());
      EXPECT_EQ(evaluated.accuracy, summary["val_accuracy"].get<double>());
      EXPECT_EQ(evaluated.terms, 21);
    });
  });
}

TEST(ImageTask, TheDigestHoldsRunningValues) {
  const std::vector<NamedTensor> none;
  EXPECT_EQ(digest_of(none), plan::Digest());
  const std::vector<NamedTensor> values = {{"norm.running_mean", at::ones({2})}};
  const plan::Digest before = digest_of(values);
  values[0].tensor[1] = 2;
  EXPECT_NE(digest_of(values), before);
}

TEST(ImageTask, GoingBackBringsRunningValuesBack) {
  PictureRun run;
  run.run_on(2, [](Trainer& trainer, int) {
    StateCopy copy(trainer.state(), nullptr);
    const std::string before = trainer.state().digest();
    copy.keep(0);
    trainer.run();
    EXPECT_NE(trainer.state().digest(), before);
    copy.bring_back();
    EXPECT_EQ(trainer.state().digest(), before);
  });
}

TEST(ImageTask, RunningValuesGoThroughACheckpoint) {
  PictureRun run;
  run.config.model.norm = "batch";
  run.config.run.steps = 4;
  const auto unbroken = run.run(1);
  const TempFolder folder;
  std::string from;
  int64_t step = 0;
  for (const auto& [ranks, shard] :
       {std::pair(2, "none"), std::pair(3, "zero1"), std::pair(2, "zero3"), std::pair(1, "none")}) {
    ++step;
    run.config.parallel.shard = shard;
    const auto part = run_part(run, ranks, folder.path(), from, step);
    from = checkpoints::checkpoints_of(folder.path()) + "/" + checkpoints::folder_name(step);
    if (step == 4) {
      EXPECT_EQ(bits_of(part), bits_of(unbroken));
    }
  }
}

TEST(ImageTask, ItLearns) {
  PictureRun run;
  run.config.run.steps = 30;
  run.config.data.augment = false;
  const nlohmann::json summary = run.run(2);
  EXPECT_GT(summary["val_accuracy"].get<double>(), 0.9);
  EXPECT_LT(summary["val_loss"].get<double>(), 0.5);
}

TEST(ImageTask, RefusesFilesThatDoNotBelongTogether) {
  const TempFolder folder;
  write_rows(folder.file("a.pictures"), 4, 1);
  files::write_pictures(folder.file("b.pictures"),
                        {.count = 1, .rows = 2, .columns = 2, .classes = 3}, std::string(1, '\0'),
                        "abcd");
  plan::TrainConfig config = PictureRun().config;
  config.data.train = folder.file("a.pictures");
  config.data.valid = folder.file("b.pictures");
  EXPECT_THROW(ImageTask::open(config), UsageError);
  config.data.valid = folder.file("nothing");
  EXPECT_THROW(ImageTask::open(config), EnvironmentError);
}

/// Also where no command has looked at the settings before.
TEST(ImageTask, ItIsNeitherCutNorDivided) {
  plan::TrainConfig config = PictureRun().config;
  models::ModelPart part;
  part.tensor = plan::place_of(2, 2, 0, false);
  EXPECT_THROW(make_task(config, {}, part), UsageError);
}

TEST(Augment, MovesAndMirrors) {
  const files::PictureShape shape{.count = 1, .rows = 2, .columns = 3, .classes = 1};
  const std::vector<uint8_t> points = {0, 51, 102, 153, 204, 255};
  const auto placed = [&](const detail::Shift& shift) {
    std::vector<float> out(6);
    detail::place(points, shape, shift, out.data());
    std::vector<int> back;
    for (const float value : out)
      back.push_back(static_cast<int>(std::lround((value + 1) * 127.5)));
    return back;
  };
  EXPECT_EQ(placed({}), (std::vector<int>{0, 51, 102, 153, 204, 255}));
  EXPECT_EQ(placed({.down = 1}), (std::vector<int>{0, 0, 0, 0, 51, 102}));
  EXPECT_EQ(placed({.right = -1}), (std::vector<int>{51, 102, 0, 204, 255, 0}));
  EXPECT_EQ(placed({.mirrored = true}), (std::vector<int>{102, 51, 0, 255, 204, 153}));
  EXPECT_EQ(placed({.right = 2, .mirrored = true}), (std::vector<int>{0, 0, 0, 153, 0, 0}));
}

TEST(Augment, DrawsEachShiftAlikeOften) {
  int down[5] = {}, right[5] = {}, mirrored = 0;
  for (uint64_t sample = 0; sample < 5000; ++sample) {
    const detail::Shift shift = detail::drawn_shift(base::RandomKey(1).with(sample));
    ++down[shift.down + 2];
    ++right[shift.right + 2];
    mirrored += shift.mirrored;
  }
  // Five standard deviations of 1000 and of 2500 in 5000 draws.
  for (const int count : down) EXPECT_NEAR(count, 1000, 142);
  for (const int count : right) EXPECT_NEAR(count, 1000, 142);
  EXPECT_NEAR(mirrored, 2500, 177);
}

}  // namespace
}  // namespace lockstep
