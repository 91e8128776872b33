// Runs that begin with weights in the place of drawn values, and train a part of them.

#include "lockstep/train/start_weights.h"

#include <gtest/gtest.h>

#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/hugging_face.h"
#include "lockstep/train/model_file.h"
#include "tests/train/run_bits.h"
#include "tests/train/tiny_run.h"

namespace lockstep {
namespace {

using testing::Bits;
using testing::bits_of;
using testing::TempFolder;
using testing::TinyRun;

struct Layout {
  int tensor;
  int pipeline;
  int context;
  int data;
  const char* shard;
  int ranks() const { return tensor * pipeline * context * data; }
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << "tp " << layout.tensor << " pp " << layout.pipeline << " cp " << layout.context
             << " dp " << layout.data << " " << layout.shard;
}

constexpr Layout kAlone = {1, 1, 1, 1, "none"};
constexpr Layout kShared[] = {{1, 1, 1, 2, "none"},  {1, 1, 1, 2, "zero1"}, {1, 1, 1, 3, "zero2"},
                              {1, 1, 1, 2, "zero3"}, {2, 1, 1, 1, "none"},  {1, 2, 1, 1, "none"},
                              {1, 1, 2, 1, "none"},  {2, 2, 1, 2, "zero3"}, {2, 1, 1, 2, "zero1"}};

/// A vocabulary that grains do not divide, a tied head that a pipeline cuts off.
struct StartedRun : TinyRun {
  StartedRun() {
    config.run.steps = 2;
    config.model.context = 8;
    config.model.width = 20;
    config.numerics.grains = 4;
    config.numerics.tensor_grains = 2;
    config.numerics.context_grains = 2;
  }

  void lay_out(const Layout& layout) {
    config.parallel.tensor = layout.tensor;
    config.parallel.pipeline = layout.pipeline;
    config.parallel.context = layout.context;
    config.parallel.shard = layout.shard;
  }
  nlohmann::json run_as(const Layout& layout) {
    lay_out(layout);
    return run(layout.ranks());
  }
  /// Trains and keeps final.safetensors in `folder`; the digest it states.
  std::string save_in(const TempFolder& folder) {
    lay_out(kAlone);
    net::run_on_threads(1, [&](const std::shared_ptr<net::Group>& world) {
      Trainer({.config = config, .run_folder = folder.path(), .console_fd = silent()},
              world->endpoint())
          .run();
    });
    return checkpoints::open_weights(folder.file("final.safetensors"))->origin().param_digest;
  }
  /// Of all parameters before the first step.
  std::string digest_at_start(const Layout& layout) {
    lay_out(layout);
    std::string digest;
    run_on(layout.ranks(), [&](Trainer& trainer, int rank) {
      const std::string of_rank = trainer.state().digest();
      if (rank == 0) digest = of_rank;
    });
    return digest;
  }
};

struct Source {
  TempFolder folder;
  StartedRun run;
  std::string digest = run.save_in(folder);
  std::string path = folder.file("final.safetensors");
};

TEST(StartWeights, EveryLayoutHasTheFilesParameters) {
  const Source source;
  StartedRun run;
  run.config.run.seed = 5;
  ASSERT_NE(run.digest_at_start(kAlone), source.digest);
  run.config.run.from = source.path;
  EXPECT_EQ(run.digest_at_start(kAlone), source.digest);
  for (const Layout& layout : kShared) {
    EXPECT_EQ(run.digest_at_start(layout), source.digest) << layout;
  }
}

TEST(StartWeights, TheRunHasTheSameBitsOnEveryLayout) {
  const Source source;
  StartedRun run;
  run.config.run.from = source.path;
  const Bits alone = bits_of(run.run_as(kAlone));
  for (const Layout& layout : kShared) EXPECT_EQ(bits_of(run.run_as(layout)), alone) << layout;
}

TEST(StartWeights, LlamaByAFolderOfHuggingFace) {
  TempFolder folder;
  StartedRun run;
  run.config.model.family = "llama";
  run.config.model.bias = false;
  run.config.model.tied = false;
  run.config.model.heads = 4;
  run.config.model.kv_heads = 2;
  run.config.model.width = 24;
  const std::string digest = run.save_in(folder);
  checkpoints::write_hugging_face(*checkpoints::open_weights(folder.path()), folder.file("hf"));
  run.config.run.from = folder.file("hf");
  run.config.run.seed = 6;
  for (const Layout& layout : {kAlone, kShared[3], kShared[7]}) {
    EXPECT_EQ(run.digest_at_start(layout), digest) << layout;
  }
  EXPECT_EQ(load_model(folder.file("hf")).info.param_digest, digest);
}

TEST(StartWeights, DamageAndAnotherModelAreRefused) {
  const Source source;
  StartedRun run;
  run.config.run.from = source.path;
  run.config.model.layers = 3;
  EXPECT_THROW(run.digest_at_start(kAlone), StateError);
  run.config.model.layers = 2;
  {
    std::fstream file(source.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x55');
  }
  try {
    run.digest_at_start(kAlone);
    FAIL() << "a damaged file was taken";
  } catch (const StateError& error) {
    EXPECT_NE(std::string(error.what()).find(source.path), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(source.digest), std::string::npos);
  }
}

TEST(Frozen, TheSameBitsOnEveryLayout) {
  StartedRun run;
  run.config.model.layers = 4;
  const Bits free = bits_of(run.run_as(kAlone));
  for (const char* const frozen : {"wte.*, h.0.*", "h.1.*,h.3.attn.*",
                                   "wte.weight, wpe.weight, h.0.*, h.1.*", "*.bias, ln_f.*"}) {
    run.config.optim.frozen = frozen;
    const Bits alone = bits_of(run.run_as(kAlone));
    EXPECT_NE(alone.digest, free.digest) << frozen;
    for (const Layout& layout : kShared) {
      EXPECT_EQ(bits_of(run.run_as(layout)), alone) << frozen << " " << layout;
    }
  }
}

TEST(Frozen, StaysAsItWas) {
  const Source source;
  TempFolder folder;
  StartedRun run;
  run.config.run.from = source.path;
  run.config.optim.frozen = "wte.*, h.0.*";
  run.save_in(folder);
  const auto before = checkpoints::open_weights(source.path);
  const auto after = checkpoints::open_weights(folder.file("final.safetensors"));
  for (const checkpoints::WeightInfo& tensor : before->list()) {
    std::vector<float> a(static_cast<size_t>(tensor.numel)), b(a.size());
    before->read(tensor.name, 0, tensor.numel, a.data());
    after->read(tensor.name, 0, tensor.numel, b.data());
    const bool frozen = tensor.name.starts_with("wte.") || tensor.name.starts_with("h.0.");
    EXPECT_EQ(a == b, frozen) << tensor.name;
  }
}

/// Half of the layers' gradients and moments are not there.
TEST(Frozen, HasNeitherGradientNorMoments) {
  StartedRun run;
  const auto peak = [&](const char* kind) {
    return run.run_as(kAlone)["ranks"][0]["peak_bytes"][kind].get<int64_t>();
  };
  const int64_t gradients = peak("gradients"), optimizer = peak("optimizer");
  run.config.optim.frozen = "wte.*, wpe.*, h.0.*";
  const int64_t trained = 20 * 2 * 2 + 3 * 20 * 20 + 60 + 20 * 20 + 20 + 8 * 20 * 20 + 100 + 40;
  EXPECT_EQ(peak("optimizer"), trained * 8);
  EXPECT_GT(optimizer, trained * 8 + 67 * 20 * 8);
  EXPECT_LT(peak("gradients"), gradients / 2 + 1);
}

TEST(Frozen, APatternThatFitsNothingIsRefused) {
  StartedRun run;
  const auto refusal = [&](const char* frozen, const Layout& layout) {
    run.config.optim.frozen = frozen;
    try {
      run.digest_at_start(layout);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const Layout& layout : {kAlone, kShared[4], kShared[5]}) {
    EXPECT_NE(
        refusal("h.0.atn.c_attn.weight", layout).find("Did you mean \"h.0.attn.c_attn.weight\"?"),
        std::string::npos)
        << layout;
    EXPECT_NE(refusal("*", layout).find("nothing is left to train"), std::string::npos) << layout;
    EXPECT_NE(refusal("wte.*, h.7.*", layout).find("\"h.7.*\""), std::string::npos) << layout;
    // Each stage has parameters that the other has not.
    EXPECT_EQ(refusal("h.0.*", layout), "") << layout;
    EXPECT_EQ(refusal("h.1.*", layout), "") << layout;
  }
  // The head of a tied model is no parameter of its own.
  EXPECT_NE(refusal("lm_head.*", kAlone).find("lm_head"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
