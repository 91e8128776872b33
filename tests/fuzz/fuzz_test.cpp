// Every fuzz target over its seeds and over changes of them: what libFuzzer does for longer and
// with more insight (`make fuzz`), without its compiler.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

constexpr uint64_t kMutations = 20'000;

/// By name, so that the mutations of a number are the same everywhere.
std::map<std::string, std::string> seeds_of(const std::string& target) {
  std::map<std::string, std::string> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(LOCKSTEP_FUZZ_CORPUS "/") + target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return seeds;
}

/// What left the target besides the reader's own error, with what it was given.
std::string fault(const Target& target, const std::string& bytes) {
  try {
    target.run(bytes);
    return "";
  } catch (const std::exception& error) {
    return std::string(error.what()) + "\n  for " + ::testing::PrintToString(bytes.substr(0, 2000));
  }
}

class EveryTarget : public ::testing::TestWithParam<Target> {};

TEST_P(EveryTarget, TakesItsSeedsAndChangesOfThem) {
  const auto named = seeds_of(GetParam().name);
  ASSERT_FALSE(named.empty()) << "no seeds in " LOCKSTEP_FUZZ_CORPUS "/" << GetParam().name;
  std::vector<std::string> seeds;
  for (const auto& [name, bytes] : named) {
    EXPECT_EQ(fault(GetParam(), bytes), "") << name;
    seeds.push_back(bytes);
  }
  ASSERT_EQ(fault(GetParam(), ""), "");
  for (uint64_t i = 0; i < kMutations; ++i) {
    ASSERT_EQ(fault(GetParam(), mutated(seeds, GetParam().name, i)), "") << "mutation " << i;
  }
}

/// A reader, or an error's text, that calls itself for each bracket would end the process.
TEST_P(EveryTarget, HasNoDepthOfItsOwn) {
  constexpr size_t kDepth = 200'000;
  const std::string open(kDepth, '[');
  const std::string close(kDepth, ']');
  std::string objects;
  for (size_t i = 0; i < kDepth; ++i) objects += "{\"a\":";
  for (const std::string& nested : {open, open + close, objects}) {
    for (const char* start :
         {"", "{\"sha256\":\"\",\"state\":", "{\"run\":", "{\"run\":{\"steps\":", "{\"tensors\":",
          "{\"tensors\":[{\"kind\":\"param\",\"name\":"}) {
      for (const char* end : {"", "}", "}}", "}]}"}) {
        EXPECT_EQ(fault(GetParam(), start + nested + end), "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, EveryTarget, ::testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Fuzz, EveryFolderOfSeedsHasItsTarget) {
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_FUZZ_CORPUS)) {
    folders.insert(entry.path().filename());
  }
  std::set<std::string> names;
  for (const Target& target : targets()) names.insert(target.name);
  EXPECT_EQ(folders, names);
}

TEST(Fuzz, MutationsAreTheSameEverywhereAndDiffer) {
  const std::vector<std::string> seeds = {"0123456789abcdef", "{\"w\":[1,2,3]}"};
  std::set<std::string> seen;
  for (uint64_t i = 0; i < 1000; ++i) {
    const std::string bytes = mutated(seeds, "test", i);
    EXPECT_EQ(bytes, mutated(seeds, "test", i));
    seen.insert(bytes);
  }
  EXPECT_GT(seen.size(), 850U);
}

}  // namespace
}  // namespace lockstep::fuzz
