// The whole command, run as a user runs it, on a worker that only plays training. Both are this
// very program under other names, in a folder of their own.

#include "lockstep/cli/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "lockstep/base/str.h"
#include "lockstep/checkpoint/model_file.h"
#include "lockstep/cli/machine.h"
#include "lockstep/files/temp_folder.h"
#include "lockstep/launch/cores.h"
#include "lockstep/plan/train_config.h"
#include "tests/checkpoint/made_weights.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

class CommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    installation_ = new files::TempFolder("command test");  // with a space, as paths may be
    fs::copy_file("/proc/self/exe", installation_->file("lockstep"));
    fs::create_hard_link(installation_->file("lockstep"), installation_->file("lockstep-worker"));
  }
  static void TearDownTestSuite() {
    delete installation_;
    installation_ = nullptr;
  }

  void SetUp() override {
    write_tokens("data/austen/train.bin", 5000);
    write_tokens("data/austen/val.bin", 1000);
  }

  void write_tokens(const std::string& name, int count, uint16_t last = 65) {
    fs::create_directories(fs::path(here_.file(name)).parent_path());
    std::vector<uint16_t> tokens(count, 65);
    if (count > 0) tokens.back() = last;
    std::ofstream(here_.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), 2 * count);
  }

  /// `lockstep ARGS...` in the test's folder.
  Outcome lockstep(const std::vector<std::string>& args) { return run("lockstep", args); }

  /// `out`: where stdout goes; empty: it is captured.
  Outcome run(const std::string& program, const std::vector<std::string>& args,
              std::string out = "") {
    const std::string path = installation_->file(program);
    std::vector<char*> argv = {const_cast<char*>(path.c_str())};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    if (out.empty()) out = captured_.file("out");
    const std::string err = captured_.file("err");
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      if (chdir(here_.path().c_str()) == 0) execv(path.c_str(), argv.data());
      _exit(126);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            fs::is_regular_file(out) ? read_text(out) : "", read_text(err)};
  }

  std::set<std::string> runs() {
    std::set<std::string> names;
    if (!fs::exists(here_.file("runs"))) return names;
    for (const auto& entry : fs::directory_iterator(here_.file("runs"))) {
      names.insert("runs/" + entry.path().filename().string());
    }
    return names;
  }

  void expect_refused(const std::vector<std::string>& args, int code, const std::string& part) {
    const Outcome outcome = lockstep(args);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    expect_contains(outcome.err, part);
  }

  void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "not in: " << text << "\nlooked for: " << part;
  }

  static files::TempFolder* installation_;
  files::TempFolder here_{"command"};
  files::TempFolder captured_{"captured"};
};

files::TempFolder* CommandTest::installation_ = nullptr;

TEST_F(CommandTest, NoCommandIsAskedBack) {
  expect_refused({}, 2, "Commands");
  expect_refused({"trian"}, 2, "Did you mean train?");
  expect_refused({"--hlep"}, 2, "Did you mean --help?");
  expect_refused({"xyzzyx"}, 2, "lockstep --help");
  EXPECT_EQ(lockstep({"--version"}).out, "lockstep 0.1.0\n");
  const Outcome help = lockstep({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* name : {"train", "eval", "generate", "bench", "data", "doctor"}) {
    expect_contains(help.out, base::str("\n  ", name, " "));
    const Outcome own = lockstep({name, "--help"});
    EXPECT_EQ(own.code, 0);
    expect_contains(own.out, base::str("lockstep ", name));
  }
}

TEST_F(CommandTest, BadFlagsAreUsageErrors) {
  expect_refused({"train", "--preset", "nano", "--jsno"}, 2, "did you mean --json?");
  expect_refused({"train", "--presset=nano"}, 2, "did you mean --preset?");
  expect_refused({"train"}, 2, "--preset nano");
  expect_refused({"train", "--preset"}, 2, "lockstep train --help");
  expect_refused({"train", "a.toml", "b.toml"}, 2, "\"b.toml\" is one argument too many");
  expect_refused({"train", "--preset", "nano", "-n", "two"}, 2,
                 "-n two: wants a whole number of ranks, 1 or more");
  expect_refused({"eval", "x", "--ranks", "1.5"}, 2, "-n 1.5: wants a whole number of ranks");
  expect_refused({"train", "--preset", "nano", "-n", "0"}, 2, "-n 0");
  for (const char* place : {"/", "/dev/null"}) {
    expect_refused({"train", place}, 2, base::str(place, " is no regular file"));
  }
  expect_refused({"train", "--preset", "nano", "-n", "-3"}, 2, "-n -3");
  expect_refused({"train", "--preset", "nanoo"}, 2, "\"nano\"");
  expect_refused({"train", "--preset", "nano", "--set", "run.stps=1"}, 2, "\"run.steps\"");
  expect_refused({"train", "--preset", "nano", "-n", "5"}, 2, "--set data.micro_batch=2");
  expect_refused({"generate", "x", "--temperature", "nan"}, 2, "--temperature");
  expect_refused({"generate", "x", "--tokens=-1"}, 2, "--tokens");
  expect_refused({"eval"}, 2, "RUN|MODEL");
  EXPECT_TRUE(runs().empty());
}

TEST_F(CommandTest, SetTakesOneValueAtATime) {
  std::ofstream(here_.file("my.toml")) << "[run]\nsteps = 3\n";
  const Outcome printed = lockstep(
      {"train", "--set", "run.seed=5", "my.toml", "--set", "optim.lr=0.5", "--print-config"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  expect_contains(printed.out, "seed = 5                              # --set\n");
  expect_contains(printed.out, "steps = 3                             # file my.toml:2\n");
  expect_contains(printed.out, "lr = 0.5                              # --set\n");
  EXPECT_TRUE(runs().empty());
}

TEST_F(CommandTest, TrainsInAFolderOfItsOwn) {
  const Outcome first = lockstep({"train", "--preset", "nano", "-n", "3", "--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "{\"ranks\": 3, \"seed\": 1337}\n");  // and nothing else
  const Outcome second =
      lockstep({"train", "--preset", "nano", "--set", "run.seed=9", "--set", "comm.timeout_s=7.5"});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.out, "");
  ASSERT_EQ(runs().size(), 2u);
  for (const std::string& folder : runs()) {
    EXPECT_TRUE(std::regex_match(folder, std::regex("runs/nano-[0-9a-f]{4}"))) << folder;
  }
  const std::string folder = first.err.substr(4, first.err.find(',') - 4);
  EXPECT_EQ(first.err, "run " + folder + ", 3 ranks\nstep 1\n");
  for (const char* name : {"config.json", "config.toml", "rank_0000.log", "rank_0002.log"}) {
    EXPECT_TRUE(fs::exists(here_.file(folder + "/" + name))) << name;
  }
  EXPECT_EQ(read_text(here_.file(folder + "/rank_0002.log")), "rank 2 of 3, 120 s\n");
  const std::string other = second.err.substr(4, second.err.find(',') - 4);
  EXPECT_NE(other, folder);
  EXPECT_EQ(read_text(here_.file(other + "/rank_0000.log")), "rank 0 of 1, 7.5 s\n");
  // What the folder keeps can be run again.
  const Outcome again = lockstep({"train", other + "/config.toml", "--print-config"});
  expect_contains(again.out, "seed = 9 ");
}

TEST_F(CommandTest, AFailedRunSaysWhyAndWhere) {
  const Outcome died =
      lockstep({"train", "--preset", "nano", "-n", "3", "--set", "run.name=dies", "--json"});
  EXPECT_EQ(died.code, 4);
  EXPECT_EQ(died.out, "");
  expect_contains(died.err, "[rank 2 of 3] died: killed by signal 9 (Killed)");
  expect_contains(died.err, base::str("Its log: ", *runs().begin(), "/rank_0002.log"));
  EXPECT_FALSE(fs::exists(here_.file(*runs().begin() + "/final.safetensors.tmp-4194304-0")));
  EXPECT_EQ(lockstep({"train", "--preset", "nano", "--set", "run.name=stops", "--json"}).code, 75);
  EXPECT_EQ(lockstep({"train", "--preset", "nano", "--set", "run.name=mute", "--json"}).code, 6);
  EXPECT_EQ(lockstep({"train", "--preset", "nano", "--set", "run.name=mute"}).code, 0);
}

TEST_F(CommandTest, AResultThatCannotBeWrittenIsAFailure) {
  const std::vector<std::vector<std::string>> lines = {
      {"--version"},
      {"train", "--preset", "nano", "--print-config"},
      {"train", "--preset", "nano", "--json"},
      {"data", "inspect", "data/austen/train.bin"}};
  for (const auto& args : lines) {
    const Outcome outcome = run("lockstep", args, "/dev/full");
    EXPECT_EQ(outcome.code, 3) << testing::PrintToString(args);
    expect_contains(outcome.err,
                    "lockstep: cannot write the result to stdout: No space left on device.\n");
  }
  // Without a result there is nothing to miss, and a failure keeps its own code.
  EXPECT_EQ(run("lockstep", {"train", "--preset", "nano"}, "/dev/full").code, 0);
  EXPECT_EQ(run("lockstep", {"train"}, "/dev/full").code, 2);
}

TEST_F(CommandTest, ASignalOfAWriteDoesNotEndTheCommandAndIsADefaultForRanks) {
  EXPECT_EQ(lockstep({"train", "--preset", "nano", "-n", "2", "--set", "run.name=pipes"}).code, 0);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit nothing{0, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &nothing);
  const int code = lockstep({"--version"}).code;  // into a file: SIGXFSZ
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(code, 3);
}

TEST_F(CommandTest, DataIsLookedAtBeforeAnyRankStarts) {
  fs::remove(here_.file("data/austen/val.bin"));
  expect_refused({"train", "--preset", "nano"}, 3, "lockstep data prepare austen");
  write_tokens("data/austen/val.bin", 128);  // a sequence of 128 needs one more
  expect_refused({"train", "--preset", "nano"}, 3, "129");
  write_tokens("data/austen/val.bin", 129);
  EXPECT_EQ(lockstep({"train", "--preset", "nano", "--dry-run"}).code, 0);
  write_tokens("data/austen/train.bin", 5000, /*last=*/256);
  expect_refused({"train", "--preset", "nano"}, 3, "token 4999 has id 256");
  EXPECT_EQ(lockstep({"train", "--preset", "nano", "--set", "model.vocab=257", "--dry-run"}).code,
            0);
  write_tokens("data/austen/train.bin", 0);
  expect_refused({"train", "--preset", "nano"}, 3, "train.bin is empty");
  EXPECT_TRUE(runs().empty());
}

TEST_F(CommandTest, ADryRunTellsWhoComputesWhat) {
  const Outcome dry = lockstep({"train", "--preset", "nano", "-n", "3", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  expect_contains(dry.out, "rank 0    leaves 0 and 1: sequences 0 to 7 of each step\n");
  expect_contains(dry.out, "rank 1    leaf 2: sequences 8 to 11 of each step\n");
  expect_contains(dry.out, "rank 2    leaf 3: sequences 12 to 15 of each step\n");
  // 600 steps of 16 windows; (5000 - 1) / 128 = 39 windows.
  expect_contains(dry.out, "600 steps, 1,228,800 tokens, 246.15 epochs\n");
  expect_contains(dry.out, "Nothing was started.\n");
  const Outcome json = lockstep({"train", "--preset", "nano", "-n", "3", "--dry-run", "--json"});
  const auto plan = nlohmann::json::parse(json.out);
  EXPECT_EQ(plan["grains"], 4);
  EXPECT_EQ(plan["ranks"][0],
            nlohmann::json(
                {{"rank", 0}, {"leaves", {0, 1}}, {"samples", nlohmann::json::array({{0, 8}})}}));
  EXPECT_EQ(plan["config"]["run"]["name"], "nano");
  EXPECT_TRUE(runs().empty());
}

TEST_F(CommandTest, APlaceThatCannotBeWrittenIsNamed) {
  expect_refused({"train", "--preset", "nano", "--set", "run.dir=/proc/nowhere"}, 3,
                 "/proc/nowhere");
  std::ofstream(here_.file("taken")) << "a file";
  expect_refused({"train", "--preset", "nano", "--set", "run.dir=taken"}, 3,
                 "--set run.dir=FOLDER");
}

TEST_F(CommandTest, WeightsAreARunsOrAFiles) {
  fs::create_directories(here_.file("runs/nano-12ab"));
  expect_refused({"eval", "runs/nano-12ab"}, 6, "runs/nano-12ab: this folder holds no model");
  expect_refused({"eval", "nano-12ab"}, 6, "Did you mean runs/nano-12ab?");
  expect_refused({"generate", "nothing.safetensors"}, 6, "nothing.safetensors");
  std::ofstream(here_.file("runs/nano-12ab/final.safetensors")) << "weights";
  expect_refused({"eval", "runs/nano-12ab"}, 6, "runs/nano-12ab/final.safetensors");
  namespace made = checkpoints::testing;
  checkpoints::write_model_file(here_.file("runs/nano-12ab/final.safetensors"),
                                made::MadeWeights(made::gpt2(), 11));
  expect_refused({"eval", "runs/nano-12ab"}, 2, "--data FILE");  // of no run: it has none
  EXPECT_EQ(lockstep({"eval", "runs/nano-12ab/final.safetensors", "-n", "2", "--json", "--data",
                      "data/austen/val.bin"})
                .out,
            "worker 0 of 2: eval runs/nano-12ab/final.safetensors --data data/austen/val.bin "
            "--json\n");
  expect_refused({"eval", "runs/nano-12ab", "--data", "none.bin"}, 3, "none.bin");
  EXPECT_EQ(
      lockstep({"generate", "runs/nano-12ab/", "--prompt", "-Ab c", "--temperature", "0"}).out,
      "worker 0 of 1: generate runs/nano-12ab/ --prompt -Ab c --tokens 200 --temperature 0 "
      "--top-k 0 --seed 1\n");
}

TEST_F(CommandTest, TheDoctorLooksAtEachThing) {
  const Outcome outcome = lockstep({"doctor", "--json"});
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report["ready"], outcome.code == 0);
  std::set<std::string> names;
  for (const auto& check : report["checks"]) {
    names.insert(check["name"]);
    if (check["name"] == "worker") {
      EXPECT_EQ(check["found"], "a worker that plays");
    }
    if (check["name"] == "data") {
      EXPECT_EQ(check["verdict"], "ok");
    }
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"topology", "cores", "instructions", "products", "memory",
                                   "shared memory", "huge pages", "open files", "worker", "data"}));
  fs::remove_all(here_.file("data"));
  expect_contains(lockstep({"doctor"}).out, "to do: lockstep data prepare austen\n");
}

TEST_F(CommandTest, TheDoctorPlacesRanksOnATopologyAndChecksMeshes) {
  std::ofstream(here_.file("two.toml")) << "[[hosts]]\nnames = [\"a\", \"b\"]\n"
                                           "packages = [[\"2\", \"2\"], [\"2\", \"2\"]]\n";
  const Outcome eight = lockstep({"doctor", "--topology", "two.toml", "-n", "8"});
  expect_contains(eight.out, "ranks 6 to 7: a, package 1, cache 1: cpus 6-7\n");
  EXPECT_EQ(eight.out.find("rank 8"), std::string::npos);
  EXPECT_EQ(eight.out.find("mesh"), std::string::npos);
  const Outcome all = lockstep({"doctor", "--topology", "two.toml", "--mesh", "dp=-1 tp=8"});
  expect_contains(all.out, "ranks 14 to 15: b, package 1, cache 1: cpus 6-7\n");
  expect_contains(all.out, "ok       mesh            dp=2 tp=8: no group on a slower link");
  const Outcome across = lockstep({"doctor", "--topology", "two.toml", "--mesh", "tp=16"});
  EXPECT_EQ(across.code, 0);
  expect_contains(across.out, "note     mesh            tp group {0, 1, ..., 15} crosses hosts");
  expect_contains(across.out, "to do: use tp=8\n");

  expect_refused({"doctor", "--topology", "none.toml"}, 2, "there is no file none.toml.");
  expect_refused({"doctor", "--topology", "two.toml", "-n", "17"}, 2, "17 ranks do not fit");
  expect_refused({"doctor", "--topology", "two.toml", "--mesh", "tp=2", "-n", "3"}, 2,
                 "mesh tp=2 has 2 places for 3 ranks");
  expect_refused({"doctor", "-n", "0"}, 2, "a job has at least 1 rank");
  expect_refused({"doctor", "--print-topology", "-n", "2"}, 2, "--ranks excludes --print-topology");
}

TEST_F(CommandTest, TheDoctorPrintsATopologyThatItReadsAgain) {
  const Outcome printed = lockstep({"doctor", "--print-topology"});
  EXPECT_EQ(printed.code, 0);
  std::ofstream(here_.file("here.toml")) << printed.out;
  EXPECT_EQ(lockstep({"doctor", "--topology", "here.toml", "--print-topology"}).out, printed.out);
}

TEST_F(CommandTest, TheDoctorSaysWhichRanksWouldBeBound) {
  expect_contains(lockstep({"doctor", "-n", "1"}).out, "a lone rank is bound to no core\n");
  const int at_once = launch::cores_at_full_speed();
  expect_contains(lockstep({"doctor", "-n", std::to_string(at_once + 1)}).out,
                  base::str(at_once + 1, " ranks are more than the ", at_once,
                            " that run at full speed here: none is bound to a core\n"));
  if (at_once == 1) return;
  const std::string out = lockstep({"doctor"}).out;
  expect_contains(out, ", package 0, cache 0: cpu");
  EXPECT_EQ(out.find("bound"), std::string::npos);
}

TEST_F(CommandTest, AMissingWorkerIsFoundBeforeARunFolderIsMade) {
  fs::rename(installation_->file("lockstep-worker"), installation_->file("away"));
  const Outcome train = lockstep({"train", "--preset", "nano"});
  const Outcome dry = lockstep({"train", "--preset", "nano", "--dry-run"});
  const Outcome doctor = lockstep({"doctor"});
  fs::rename(installation_->file("away"), installation_->file("lockstep-worker"));
  EXPECT_EQ(train.code, 2);
  expect_contains(train.err, "lockstep-worker: there is no such program");
  EXPECT_EQ(dry.code, 2);
  EXPECT_EQ(doctor.code, 3);
  EXPECT_TRUE(runs().empty());
}

TEST(Machine, ReadsWhatTheKernelWrites) {
  const std::string meminfo = "MemTotal:       24 kB\nMemAvailable:  7 kB\nOdd: kB\n";
  EXPECT_EQ(meminfo_bytes(meminfo, "MemAvailable"), 7 * 1024);
  EXPECT_EQ(meminfo_bytes(meminfo, "Mem"), -1);
  EXPECT_EQ(meminfo_bytes(meminfo, "Odd"), -1);
  EXPECT_EQ(chosen_word("always advise [never] deny"), "never");
  EXPECT_EQ(chosen_word(""), "");
}

// ---- the worker that plays

int play_training(const std::string& folder) {
  const int rank = std::atoi(std::getenv("LOCKSTEP_RANK"));
  const int ranks = std::atoi(std::getenv("LOCKSTEP_WORLD_SIZE"));
  const auto config = plan::from_json(nlohmann::json::parse(read_text(folder + "/config.json")));
  std::fprintf(stderr, "rank %d of %d, %s s\n", rank, ranks, std::getenv("LOCKSTEP_TIMEOUT_S"));
  if (config.run.name == "dies" && rank == ranks - 1) {
    std::ofstream(folder + "/final.safetensors.tmp-4194304-0") << "half a";
    raise(SIGKILL);
  }
  if (config.run.name == "stops") return 75;
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    if (std::signal(signal, SIG_DFL) != SIG_DFL && config.run.name == "pipes") return 1;
  }
  if (rank != 0 || config.run.name == "mute") return 0;
  dprintf(std::atoi(std::getenv("LOCKSTEP_CONSOLE_FD")), "step 1\n");
  std::ofstream(folder + "/summary.json")
      << "{\"ranks\": " << ranks << ", \"seed\": " << config.run.seed << "}";
  return 0;
}

int play_worker(const std::vector<std::string>& args) {
  if (args.at(0) == "version") {
    std::printf("a worker that plays\n");
    return 0;
  }
  if (args.at(0) == "train") return play_training(args.at(1));
  std::string line = base::str("worker ", std::getenv("LOCKSTEP_RANK"), " of ",
                               std::getenv("LOCKSTEP_WORLD_SIZE"), ":");
  for (const std::string& arg : args) line += " " + arg;
  std::printf("%s\n", line.c_str());
  return 0;
}

}  // namespace

int play(const std::string& program, const std::vector<std::string>& args) {
  return program == "lockstep-worker" ? play_worker(args) : run_program(args);
}

}  // namespace lockstep::cli

int main(int argc, char** argv) {
  const std::string program = std::filesystem::path(argv[0]).filename().string();
  if (program == "lockstep" || program == "lockstep-worker") {
    return lockstep::cli::play(program, {argv + 1, argv + argc});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
