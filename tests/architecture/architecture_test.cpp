// Reads every #include of the project and fails at the edge that climbs the ladder.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// From the ground up; folders on one rung do not include each other.
const std::vector<std::vector<std::string>> kLadder = {
    {"base"},
    {"plan"},
    {"net", "files"},
    {"torch_inside"},
    {"comm"},
    {"kernels", "memory"},
    {"state"},
    {"optim", "precision", "checkpoint", "input"},
    {"fused"},
    {"parallel"},
    {"models"},
    {"train"},
    {"launch", "report", "planner"},
    {"cli", "worker"},
};

/// A plan is answered, and a command starts, without loading LibTorch.
const std::set<std::string> kWithoutTorch = {"base",  "plan",      "net",        "files", "kernels",
                                             "optim", "precision", "checkpoint", "input", "launch",
                                             "cli",   "report",    "planner"};

struct Include {
  int line = 0;
  std::string header;
};

using Sources = std::map<std::string, std::vector<Include>>;  // by path from the root

/// "lockstep/plan/mesh.h" -> "plan"; empty for a file of no folder (lockstep/lockstep.h).
std::string folder_of(const std::string& path) {
  static const std::regex kFolder("^lockstep/([^/]+)/");
  std::smatch found;
  return std::regex_search(path, found, kFolder) ? found[1].str() : "";
}

int rung_of(const std::string& folder) {
  for (size_t rung = 0; rung < kLadder.size(); ++rung) {
    if (std::find(kLadder[rung].begin(), kLadder[rung].end(), folder) != kLadder[rung].end()) {
      return static_cast<int>(rung);
    }
  }
  return -1;
}

bool is_torch(const std::string& header) {
  static const std::regex kTorch("^(torch|ATen|c10|caffe2)/");
  return std::regex_search(header, kTorch);
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

std::vector<Include> includes_in(std::istream& source) {
  static const std::regex kInclude("^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">]+)[\">]");
  std::vector<Include> found;
  std::string line;
  for (int number = 1; std::getline(source, line); ++number) {
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) found.push_back({number, match[1].str()});
  }
  return found;
}

std::string edge(const std::string& path, const Include& include) {
  return path + ":" + std::to_string(include.line) + " includes " + include.header;
}

/// Every include of lockstep/ goes down the ladder or stays in its folder.
std::vector<std::string> climbing_edges(const Sources& sources) {
  std::vector<std::string> edges;
  for (const auto& [path, includes] : sources) {
    const std::string from = folder_of(path);
    if (from.empty()) continue;
    if (rung_of(from) < 0) edges.push_back(path + ": the folder " + from + " is on no rung");
    for (const Include& include : includes) {
      const std::string to = folder_of(include.header);
      if (to.empty() || to == from) continue;
      if (rung_of(to) < 0 || rung_of(to) >= rung_of(from)) {
        edges.push_back(edge(path, include) + ": " + from + " does not stand on " + to);
      }
    }
  }
  return edges;
}

/// The first chain of includes by which `path` reaches a torch header; empty if there is none.
std::string way_to_torch(const Sources& sources, const std::string& path,
                         std::set<std::string>& visited) {
  const auto found = sources.find(path);
  if (found == sources.end() || !visited.insert(path).second) return "";
  for (const Include& include : found->second) {
    if (is_torch(include.header)) return edge(path, include);
    const std::string rest = way_to_torch(sources, include.header, visited);
    if (!rest.empty()) return edge(path, include) + "\n    " + rest;
  }
  return "";
}

std::vector<std::string> ways_to_torch(const Sources& sources) {
  std::vector<std::string> ways;
  for (const auto& [path, includes] : sources) {
    if (!kWithoutTorch.contains(folder_of(path))) continue;
    std::set<std::string> visited;
    const std::string way = way_to_torch(sources, path, visited);
    if (!way.empty()) ways.push_back(way);
  }
  return ways;
}

/// A header of ours is named from the root, so that its folder can be read off.
std::vector<std::string> includes_from_elsewhere(const Sources& sources) {
  std::vector<std::string> found;
  for (const auto& [path, includes] : sources) {
    for (const Include& include : includes) {
      const std::string beside =
          (fs::path(path).parent_path() / include.header).lexically_normal().generic_string();
      if (sources.contains(beside) && beside != include.header) {
        found.push_back(edge(path, include) + ": write \"" + beside + "\"");
      }
    }
  }
  return found;
}

fs::path root() { return fs::path(__FILE__).parent_path().parent_path().parent_path(); }

bool is_source(const fs::path& path) {
  return path.extension() == ".h" || path.extension() == ".cpp";
}

Sources all_sources() {
  Sources sources;
  for (const char* part : {"lockstep", "tests", "examples", "bench"}) {
    if (!fs::exists(root() / part)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root() / part)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      std::ifstream file(entry.path());
      sources[entry.path().lexically_relative(root()).generic_string()] = includes_in(file);
    }
  }
  return sources;
}

std::string lines_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += "\n  " + word;
  return text;
}

TEST(Architecture, FindsTheSources) {
  const Sources sources = all_sources();
  ASSERT_TRUE(sources.contains("lockstep/base/str.h")) << "the root is not at " << root();
  EXPECT_TRUE(sources.contains("tests/architecture/architecture_test.cpp"));
  EXPECT_FALSE(sources.at("lockstep/base/str.cpp").empty());
}

TEST(Architecture, NoIncludeClimbsTheLadder) {
  const auto edges = climbing_edges(all_sources());
  EXPECT_TRUE(edges.empty()) << lines_of(edges);
}

TEST(Architecture, FoldersWithoutTorchDoNotReachIt) {
  const auto ways = ways_to_torch(all_sources());
  EXPECT_TRUE(ways.empty()) << lines_of(ways);
}

TEST(Architecture, HeadersAreNamedFromTheRoot) {
  const auto found = includes_from_elsewhere(all_sources());
  EXPECT_TRUE(found.empty()) << lines_of(found);
}

TEST(Architecture, NothingStandsOnTheTests) {
  std::vector<std::string> edges;
  for (const auto& [path, includes] : all_sources()) {
    for (const Include& include : includes) {
      const bool library = starts_with(path, "lockstep/") || starts_with(path, "examples/");
      if (library && starts_with(include.header, "tests/")) edges.push_back(edge(path, include));
      // The reference programs are a second opinion: they share no code with the library.
      if (starts_with(path, "tests/reference/") && starts_with(include.header, "lockstep/")) {
        edges.push_back(edge(path, include));
      }
    }
  }
  EXPECT_TRUE(edges.empty()) << lines_of(edges);
}

TEST(Architecture, EveryFolderOpensWithAReadme) {
  std::set<std::string> folders;
  for (const auto& [path, includes] : all_sources()) {
    if (!folder_of(path).empty()) folders.insert(folder_of(path));
  }
  for (const std::string& folder : folders) {
    EXPECT_TRUE(fs::exists(root() / "lockstep" / folder / "README.md")) << "lockstep/" << folder;
  }
}

// The reader itself, on made-up sources.

Sources made_up(const std::map<std::string, std::string>& files) {
  Sources sources;
  for (const auto& [path, text] : files) {
    std::istringstream stream(text);
    sources[path] = includes_in(stream);
  }
  return sources;
}

TEST(ArchitectureReader, ReadsIncludesAsTheyAreWritten) {
  const Sources sources = made_up({{"lockstep/plan/a.h",
                                    "#pragma once\n#include <vector>\n"
                                    "// #include \"lockstep/comm/no.h\"\n"
                                    "  #  include\t\"lockstep/base/str.h\"  // why\n"}});
  const auto& includes = sources.at("lockstep/plan/a.h");
  ASSERT_EQ(includes.size(), 2u);
  EXPECT_EQ(includes[0].header, "vector");
  EXPECT_EQ(includes[1].header, "lockstep/base/str.h");
  EXPECT_EQ(includes[1].line, 4);
}

TEST(ArchitectureReader, PrintsTheEdgeThatClimbs) {
  const auto edges = climbing_edges(made_up({
      {"lockstep/plan/up.h", "#include \"lockstep/comm/work.h\"\n"},
      {"lockstep/net/sibling.h", "\n#include \"lockstep/files/f.h\"\n"},
      {"lockstep/net/engines/shm/down.cpp",
       "#include \"lockstep/net/w.h\"\n"
       "#include \"lockstep/base/str.h\"\n"},
      {"lockstep/cli/main.cpp", "#include \"lockstep/train/t.h\"\n"},
      {"lockstep/novel/x.h", ""},
  }));
  EXPECT_EQ(edges, (std::vector<std::string>{
                       "lockstep/net/sibling.h:2 includes lockstep/files/f.h: net does not stand "
                       "on files",
                       "lockstep/novel/x.h: the folder novel is on no rung",
                       "lockstep/plan/up.h:1 includes lockstep/comm/work.h: plan does not stand "
                       "on comm"}));
}

TEST(ArchitectureReader, FollowsTheWayToTorch) {
  const auto ways = ways_to_torch(made_up({
      {"lockstep/cli/main.cpp", "#include \"lockstep/train/t.h\"\n"},
      {"lockstep/train/t.h", "#include \"lockstep/train/u.h\"\n"},
      {"lockstep/train/u.h", "#include \"lockstep/train/t.h\"\n#include <ATen/ATen.h>\n"},
      {"lockstep/kernels/k.cpp", "#include <c10/util/Half.h>\n"},
      {"lockstep/plan/p.h", "#include <vector>\n"},
  }));
  EXPECT_EQ(ways, (std::vector<std::string>{"lockstep/cli/main.cpp:1 includes lockstep/train/t.h\n"
                                            "    lockstep/train/t.h:1 includes lockstep/train/u.h\n"
                                            "    lockstep/train/u.h:2 includes ATen/ATen.h",
                                            "lockstep/kernels/k.cpp:1 includes c10/util/Half.h"}));
}

TEST(ArchitectureReader, FindsHeadersNamedFromBeside) {
  const auto found = includes_from_elsewhere(made_up({
      {"lockstep/plan/a.h", ""},
      {"lockstep/plan/b.cpp", "#include \"a.h\"\n#include \"lockstep/plan/a.h\"\n"},
  }));
  EXPECT_EQ(found, (std::vector<std::string>{
                       "lockstep/plan/b.cpp:1 includes a.h: write \"lockstep/plan/a.h\""}));
}

}  // namespace
