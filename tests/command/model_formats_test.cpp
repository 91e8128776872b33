// Models of other programs, by the command: their logits beside those that another program computes
// from the formulas (tests/reference/hugging_face_model.py), and the ways in and out.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/files/safetensors.h"
#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

struct Said {
  std::vector<int64_t> ids;
  std::vector<float> logits;
};

Said read_said(const std::string& path) {
  const auto file = files::SafetensorsFile::open(path);
  Said said;
  said.ids.resize(static_cast<size_t>(file.info("ids").bytes / 8));
  file.read("ids", said.ids.data(), std::ssize(said.ids) * 8);
  said.logits.resize(static_cast<size_t>(file.info("logits").bytes / 4));
  file.read("logits", said.logits.data(), std::ssize(said.logits) * 4);
  return said;
}

/// A model made by the other program.
struct Made {
  explicit Made(const std::vector<std::string>& how) {
    std::vector<std::string> words = {"/usr/bin/python3", "tests/reference/hugging_face_model.py",
                                      folder.path()};
    words.insert(words.end(), how.begin(), how.end());
    const CommandResult made = Command(words).wait();
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  /// Of the model at `path`, over the tokens of the reference.
  Said ask(const std::string& path) const {
    const CommandResult result = lockstep({"eval", path, "--data", folder.file("tokens.bin"),
                                           "--logits", folder.file("said.safetensors"), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_said(folder.file("said.safetensors"));
  }

  TempFolder folder;
  std::string model = folder.file("model");
};

class ModelFormats : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists("/usr/lib/python3/dist-packages/torch")) {
      GTEST_SKIP() << "no PyTorch for Python: apt-get install python3-torch";
    }
  }
};

TEST_F(ModelFormats, LogitsAreThoseOfTheFormulas) {
  const std::vector<std::vector<std::string>> models = {
      {"gpt2"},
      {"gpt2", "tie_word_embeddings=false", "n_inner=100"},
      {"gpt2", "dtype=bfloat16"},
      {"llama"},
      {"llama", "tie_word_embeddings=true", "num_key_value_heads=6"},
      {"llama", "num_key_value_heads=1", "dtype=float16"}};
  double worst = 0;
  for (const auto& how : models) {
    const Made made(how);
    const Said expected = read_said(made.folder.file("expected.safetensors"));
    const Said said = made.ask(made.model);
    EXPECT_EQ(said.ids, expected.ids);
    ASSERT_EQ(said.logits.size(), expected.logits.size());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < said.logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(expected.logits[i])));
      difference = std::max(difference, std::abs(static_cast<double>(said.logits[i]) -
                                                 static_cast<double>(expected.logits[i])));
    }
    EXPECT_GT(largest, 1);
    // fp32 beside fp64: 2^-24 of what is summed, through the layers.
    EXPECT_LT(difference, 1e-5) << ::testing::PrintToString(how) << ", logits up to " << largest;
    std::cout << ::testing::PrintToString(how) << ": logits up to " << largest
              << ", worst difference " << difference << "\n";
    worst = std::max(worst, difference);
  }
  std::cout << "worst difference " << worst << "\n";
}

TEST_F(ModelFormats, InAndOutAgainChangeNothing) {
  const Made made({"llama"});
  const Said said = made.ask(made.model);
  const std::string file = made.folder.file("mine.safetensors");
  CommandResult result = lockstep({"checkpoint", "import", made.model, file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(made.ask(file).logits, said.logits);
  const std::string out = made.folder.file("out");
  result = lockstep({"checkpoint", "export", file, out, "--file-gb", "0.0001"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::exists(out + "/model.safetensors.index.json"));
  EXPECT_EQ(made.ask(out).logits, said.logits);
  result = lockstep({"checkpoint", "export", file, out});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("not empty"), std::string::npos) << result.err;
}

TEST_F(ModelFormats, ATokenizerThatNobodyKnowsIsAskedFor) {
  const Made made({"gpt2"});
  CommandResult result = lockstep({"generate", made.model, "--tokens", "3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--tokenizer NAME"), std::string::npos) << result.err;
  result =
      lockstep({"generate", made.model, "--tokens", "3", "--tokenizer", "bytes", "--prompt", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("an id 120 of the prompt, but the model knows 97"), std::string::npos)
      << result.err;
  result =
      lockstep({"generate", made.model, "--tokens", "3", "--tokenizer", "bytes", "--prompt", "A"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  result = lockstep({"eval", made.model});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--data FILE"), std::string::npos) << result.err;
}

/// The run begins where the model was, and what is frozen stays.
TEST_F(ModelFormats, TrainingGoesOnFromThem) {
  const Made made({"gpt2"});
  const std::string data = made.folder.file("tokens.bin");
  const TempFolder runs;
  std::vector<std::string> words = {"--from", made.model, "-n", "2"};
  for (const std::string& setting :
       {std::string("run.steps=2"), "data.train=" + data, "data.valid=" + data,
        std::string("data.eval_batches=1"), std::string("optim.lr=1e-30"),
        std::string("optim.weight_decay=0"), std::string("optim.frozen=wte.*"),
        std::string("parallel.shard=zero2")}) {
    words.insert(words.end(), {"--set", setting});
  }
  const nlohmann::json summary = train(runs, words);
  const std::string file = made.folder.file("mine.safetensors");
  const CommandResult result = lockstep({"checkpoint", "import", made.model, file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find(summary["param_digest"].get<std::string>()), std::string::npos)
      << result.out;
}

}  // namespace
}  // namespace lockstep::testing
