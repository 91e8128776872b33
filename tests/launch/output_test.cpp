#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/console.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/line_splitter.h"

namespace lockstep::launch {
namespace {

using Lines = std::vector<std::string>;

/// The lines of `pieces`, which come one after the other.
std::vector<std::string> lines_of(const std::vector<std::string>& pieces, size_t most_bytes = 100) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); }, most_bytes);
  for (const std::string& piece : pieces) splitter.add(piece);
  splitter.finish();
  return lines;
}

TEST(LineSplitter, LinesAreWholeHoweverTheyCome) {
  EXPECT_EQ(lines_of({"a\nbc", "d\n\ne", "", "\nf"}), (Lines{"a\n", "bcd\n", "\n", "e\n", "f\n"}));
  EXPECT_EQ(lines_of({}), (Lines{}));
  EXPECT_EQ(lines_of({std::string("x\0y\r\n", 5)}), (Lines{std::string("x\0y\r\n", 5)}));
}

TEST(LineSplitter, ALineThatIsTooLongComesInParts) {
  EXPECT_EQ(lines_of({"abcdefgh\nij"}, 3), (Lines{"abc\n", "def\n", "gh\n", "ij\n"}));
  EXPECT_EQ(lines_of({"ab", "cd", "e\n"}, 3), (Lines{"abc\n", "de\n"}));
  EXPECT_EQ(lines_of({"abc\n"}, 3), (Lines{"abc\n"})) << "it just fits";
}

TEST(Console, AReaderThatIsGoneIsAnErrorAndNoSignal) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Console console(ends[1]);
  console.add("first");
  console.write_some();
  EXPECT_FALSE(console.has_more());
  char text[8] = {};
  EXPECT_EQ(read(ends[0], text, sizeof text), 5);
  close(ends[0]);
  console.add("second");
  console.write_some();
  EXPECT_EQ(console.error(), "Broken pipe");
  console.add("third");
  EXPECT_FALSE(console.has_more());
  close(ends[1]);
  std::signal(SIGPIPE, SIG_DFL);
}

TEST(Cores, LimitsOfControlGroupsAreRead) {
  EXPECT_EQ(cores_of_limit("150000 100000"), 1.5);
  EXPECT_EQ(cores_of_limit("50000 100000"), 0.5);
  EXPECT_EQ(cores_of_limit("max 100000"), std::nullopt);
  EXPECT_EQ(cores_of_limit(""), std::nullopt);
  EXPECT_EQ(cores_of_limit("0 0"), std::nullopt);
  EXPECT_GE(cores_at_full_speed(), 1);
  EXPECT_LE(cores_at_full_speed(), static_cast<int>(allowed_cores().size()));
}

}  // namespace
}  // namespace lockstep::launch
