// What the documents name exists: tests, files, and no path that belongs to one machine.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = fs::path(__FILE__).parent_path().parent_path().parent_path();

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> files_below(const std::vector<std::string>& folders,
                                  const std::set<std::string>& extensions) {
  std::vector<fs::path> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (extensions.count(entry.path().extension())) files.push_back(entry.path());
    }
  }
  return files;
}

/// All matches of the first group of `pattern`.
std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

/// "Suite.Name" of every test; the suite of a parameterised test without its prefix.
std::set<std::string> all_tests() {
  static const std::regex kTest(R"(\b(?:TEST(?:_F|_P)?|RC_GTEST_PROP)\(\s*(\w+\s*,\s*\w+)\s*[,)])");
  std::set<std::string> names;
  for (const fs::path& file : files_below({"tests"}, {".cpp", ".h"})) {
    for (std::string name : matches(text_of(file), kTest)) {
      name = std::regex_replace(name, std::regex(R"(\s*,\s*)"), ".");
      names.insert(name);
    }
  }
  return names;
}

std::vector<fs::path> documents() {
  std::vector<fs::path> files = files_below({"docs", "lockstep", "bench", "examples"}, {".md"});
  files.push_back(kRoot / "README.md");
  files.push_back(kRoot / "ARCHITECTURE.md");
  return files;
}

TEST(Docs, EveryTestNamedInADocumentExists) {
  static const std::regex kNamed(R"(`([A-Z]\w+\.[A-Z]\w+)`)");
  const std::set<std::string> tests = all_tests();
  ASSERT_GT(tests.size(), 100u);
  for (const fs::path& document : documents()) {
    for (const std::string& name : matches(text_of(document), kNamed)) {
      EXPECT_TRUE(tests.count(name)) << name << " in " << fs::relative(document, kRoot);
    }
  }
}

TEST(Docs, EveryTestNamedOnACardExists) {
  static const std::regex kNamed(R"(test: (\w+\.\w+))");
  const std::set<std::string> tests = all_tests();
  for (const fs::path& header : files_below({"lockstep"}, {".h"})) {
    for (const std::string& name : matches(text_of(header), kNamed)) {
      EXPECT_TRUE(tests.count(name)) << name << " in " << fs::relative(header, kRoot);
    }
  }
}

TEST(Docs, EveryFileLinkedExists) {
  static const std::regex kLink(R"(\]\(([^)#:]+)\))");
  static const std::regex kPage(R"((docs/[\w/]+\.md))");
  for (const fs::path& document : documents()) {
    for (const std::string& link : matches(text_of(document), kLink)) {
      EXPECT_TRUE(fs::exists(document.parent_path() / link))
          << link << " in " << fs::relative(document, kRoot);
    }
  }
  for (const fs::path& header : files_below({"lockstep"}, {".h"})) {
    for (const std::string& page : matches(text_of(header), kPage)) {
      EXPECT_TRUE(fs::exists(kRoot / page)) << page << " in " << fs::relative(header, kRoot);
    }
  }
}

}  // namespace
