#include "tests/command/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace lockstep::testing {

std::string beside(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Command::Command(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment)
    : start_(std::chrono::steady_clock::now()) {
  // Everything that allocates comes before fork.
  std::vector<std::string> words = arguments;
  words[0] = beside(words[0]);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);
  const std::string out = folder_.file("out");
  const std::string err = folder_.file("err");
  pid_ = ::fork();
  if (pid_ == 0) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out.c_str(), kFlags, 0600), 1);
    ::dup2(::open(err.c_str(), kFlags, 0600), 2);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
}

Command::~Command() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

CommandResult Command::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return {
      .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
      .out = text_of(folder_.file("out")),
      .err = text_of(folder_.file("err")),
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()};
}

std::string Command::output_so_far() const { return text_of(folder_.file("out")); }
std::string Command::errors_so_far() const { return text_of(folder_.file("err")); }

bool eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

CommandResult lockstep(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment) {
  std::vector<std::string> words = {"lockstep"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Command(words, environment).wait();
}

std::vector<std::string> tiny_nano() {
  std::vector<std::string> arguments = {"--preset", "nano"};
  for (const char* setting :
       {"model.layers=1", "model.width=32", "model.context=32", "data.eval_batches=1"}) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  return arguments;
}

nlohmann::json train(const TempFolder& runs, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  arguments.insert(arguments.end(), {"--set", "run.dir=" + runs.path(), "--json"});
  const CommandResult result = lockstep(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << "stdout holds more than one object: " << result.out;
  return json;
}

std::vector<std::pair<std::string, std::string>> every_algorithm() {
  return {{"all_reduce", "direct,ring,halving,binomial,tree,double_tree,hierarchical"},
          {"reduce_scatter", "direct,ring,halving"},
          {"all_gather", "direct,ring,halving,bruck"},
          {"broadcast", "direct,binomial,scatter_all_gather"},
          {"all_to_all", "direct,pairwise,bruck"}};
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // "pid (name) state ppid ...": the name may hold spaces and parentheses.
    const std::string stat = text_of(entry.path() / "stat");
    const size_t after = stat.rfind(')');
    if (after == std::string::npos || after + 4 > stat.size()) continue;
    if (std::atoi(stat.c_str() + after + 4) == parent) children.push_back(std::stoi(name));
  }
  return children;
}

std::string environment_of(pid_t pid, const std::string& name) {
  const std::string all = '\0' + text_of("/proc/" + std::to_string(pid) + "/environ");
  const std::string key = '\0' + name + "=";
  const size_t found = all.find(key);
  return found == std::string::npos ? "" : std::string(all.c_str() + found + key.size());
}

}  // namespace lockstep::testing
