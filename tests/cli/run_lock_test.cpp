#include "lockstep/cli/run_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

std::string refusal_of(const std::string& folder) {
  try {
    const RunLock lock(folder);
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

/// A process that has locked the folder, and waits for a signal.
pid_t locked_by_another(const std::string& folder) {
  int told[2];
  if (pipe(told) != 0) return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    const RunLock lock(folder);
    [[maybe_unused]] const auto said = write(told[1], "x", 1);
    pause();
    _exit(0);
  }
  char word = 0;
  [[maybe_unused]] const auto heard = read(told[0], &word, 1);
  close(told[0]);
  close(told[1]);
  return pid;
}

TEST(RunLock, ASecondCommandIsRefusedNamingTheFirst) {
  const files::TempFolder folder("lock");
  const pid_t other = locked_by_another(folder.path());
  const std::string said = refusal_of(folder.path());
  EXPECT_NE(said.find("process " + std::to_string(other)), std::string::npos) << said;
  EXPECT_NE(said.find(folder.path() + " is in use"), std::string::npos) << said;
  kill(other, SIGKILL);
  // Not waited for yet: what is gone keeps nobody out.
  EXPECT_EQ(refusal_of(folder.path()), "");
  waitpid(other, nullptr, 0);
}

TEST(RunLock, NothingIsLeftOfOneThatEnds) {
  const files::TempFolder folder("lock");
  {
    const RunLock lock(folder.path());
    EXPECT_TRUE(std::filesystem::exists(folder.file("lock")));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("lock")));
  EXPECT_EQ(refusal_of(folder.path()), "");
}

TEST(RunLock, AFileThatACrashLeftIsNoLock) {
  const files::TempFolder folder("lock");
  const pid_t other = locked_by_another(folder.path());
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.file("lock")));
  EXPECT_EQ(refusal_of(folder.path()), "");
}

TEST(RunLock, AFolderThatIsNotThereIsNamed) {
  const files::TempFolder folder("lock");
  EXPECT_NE(refusal_of(folder.file("no")).find(folder.file("no")), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
