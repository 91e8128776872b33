#include "lockstep/plan/pipeline_text.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/plan/pipelines.h"

namespace lockstep::plan {
namespace {

std::string grid(const PipelineOptions& options, const StageSeconds& seconds = {}) {
  const auto schedule = plan_pipeline(options);
  return pipeline_grid(schedule, simulate(schedule, even_costs(seconds, schedule.chunks)),
                       grid_unit(seconds, schedule.chunks, schedule.splits_weight));
}

TEST(PipelineText, IsAColumnAUnitOfTime) {
  EXPECT_EQ(grid({"1f1b", 2, 1, 2}),
            "time     0  1  2  3  4  5  6  7  8\n"
            "stage 0  F0 F1 .  .  B0 -- .  B1 --\n"
            "stage 1  .  F0 B0 -- F1 B1 -- .  .\n");
  EXPECT_EQ(grid({"zero-bubble-v", 1, 2, 1}, {2, 1, 1}),
            "time     0    1    2    3    4    5    6    7\n"
            "stage 0  F0.0 --   F0.1 --   B0.1 W0.1 B0.0 W0.0\n");
  EXPECT_EQ(grid({"gpipe", 1, 1, 0}), "time\nstage 0\n");
}

TEST(PipelineText, TheUnitIsTheLongestThatFits) {
  EXPECT_DOUBLE_EQ(grid_unit({1, 1, 1}, 1, true), 1);
  EXPECT_DOUBLE_EQ(grid_unit({2, 1, 1}, 1, false), 2);
  EXPECT_DOUBLE_EQ(grid_unit({2, 1, 1}, 1, true), 1);
  EXPECT_DOUBLE_EQ(grid_unit({1, 1.5, 1}, 2, true), 0.25);
  EXPECT_DOUBLE_EQ(grid_unit({0, 0, 0}, 2, true), 0);
}

std::string file_text(const std::string& path) {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() /
                     path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Each line behind `margin`.
std::string indented(const std::string& text, const std::string& margin) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += margin + line + "\n";
  return result;
}

TEST(PipelineText, PicturesInTheHeadersAreThePlans) {
  const std::string card = indented(grid({"1f1b", 4, 1, 4}), "///   ");
  EXPECT_NE(file_text("lockstep/plan/pipeline_schedule.h").find(card), std::string::npos) << card;
  const std::string small = indented(grid({"1f1b", 2, 1, 2}), "///   ");
  EXPECT_NE(file_text("lockstep/plan/pipeline_text.h").find(small), std::string::npos) << small;
}

void expect_picture(const std::string& page, const PipelineOptions& options) {
  const std::string picture = indented(grid(options), "    ");
  EXPECT_NE(file_text("docs/concepts/" + page).find(picture), std::string::npos) << page << "\n"
                                                                                 << picture;
}

TEST(PipelineText, PicturesInTheDocumentsAreThePlans) {
  expect_picture("pipeline.md", {"gpipe", 4, 1, 4});
  expect_picture("bubble.md", {"interleaved", 2, 2, 4});
  expect_picture("one_f_one_b.md", {"1f1b", 4, 1, 4});
  expect_picture("zero_bubble.md", {"zero-bubble", 4, 1, 4});
  expect_picture("zero_bubble.md", {"zero-bubble-v", 2, 2, 3});
}

}  // namespace
}  // namespace lockstep::plan
