#include "lockstep/files/process_lives.h"

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace lockstep::files {
namespace {

TEST(ProcessLives, NotWhatHasEndedThoughNobodyWaitedForIt) {
  EXPECT_TRUE(process_lives(getpid()));
  EXPECT_FALSE(process_lives(0));
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(gate[1]);
    _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);  // until the parent closes its end
  }
  EXPECT_TRUE(process_lives(child));
  close(gate[1]);
  close(gate[0]);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(process_lives(child)) << "it waits to be waited for";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_lives(child));
}

}  // namespace
}  // namespace lockstep::files
