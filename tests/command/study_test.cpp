// bench/study.py as a user runs it, in its shortest form: the figures, the table and the picture of
// one study.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "tests/command/command.h"

namespace lockstep::testing {
namespace {

/// Prints the title of each curve of the SVG file argv[1], a line each, with the places of its
/// mean.
constexpr const char* kCurvesOf = R"(
import sys, xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
for curve in tree.parse(sys.argv[1]).iter(svg + "g"):
    if curve.get("class") == "curve":
        print(len(curve.find(svg + "polyline").get("points").split()), curve.find(svg + "title").text)
)";

TEST(Study, WritesFiguresTableAndPicture) {
  const TempFolder out;
  const CommandResult result =
      Command({std::filesystem::absolute("bench/study.py"), "scaling", "--quick", "--out",
               out.path(), "--build",
               std::filesystem::path(beside("")).parent_path().parent_path()})
          .wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;

  const auto study = nlohmann::json::parse(text_of(out.file("study/scaling.json")), nullptr,
                                           /*allow_exceptions=*/false);
  ASSERT_TRUE(study.is_object());
  std::map<std::string, std::set<std::string>> digests;  // of the larger batch, by rule
  for (const auto& run : study["runs"]) {
    if (run["settings"]["data.global_batch"] == 32) {
      digests[run["name"]].insert(run["param_digest"]);
    }
  }
  EXPECT_EQ(digests.size(), 3U);
  std::set<std::string> all;
  for (const auto& [name, of_seeds] : digests) {
    EXPECT_EQ(of_seeds.size(), study["seeds"].size()) << name;
    all.insert(of_seeds.begin(), of_seeds.end());
  }
  EXPECT_EQ(all.size(), 3 * study["seeds"].size()) << "two rules trained alike";

  const std::string page = text_of(out.file("study.md"));
  EXPECT_NE(page.find("| batch | steps | fixed rate | linear, no warmup | linear, warmup |"),
            std::string::npos);
  double sum = 0;
  for (const auto& run : study["runs"]) {
    if (run["name"] == "linear, warmup" && run["settings"]["data.global_batch"] == 32) {
      sum += run["val_loss"].get<double>();
    }
  }
  char mean[32];
  snprintf(mean, sizeof mean, "| %.4f (", sum / study["seeds"].size());
  const size_t row = page.find("\n| 0.1 | 32 | ");
  ASSERT_NE(row, std::string::npos) << page;
  const std::string cells = page.substr(row, page.find('\n', row + 1) - row);
  EXPECT_NE(cells.rfind(mean), std::string::npos) << mean << " in " << cells;

  const CommandResult curves =
      Command({"/usr/bin/python3", "-c", kCurvesOf, out.file("study/scaling.svg")}).wait();
  EXPECT_EQ(curves.exit_code, 0) << curves.err;
  EXPECT_EQ(curves.out, "2 fixed rate\n2 linear, no warmup\n2 linear, warmup\n");
}

}  // namespace
}  // namespace lockstep::testing
