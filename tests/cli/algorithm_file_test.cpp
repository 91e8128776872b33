#include "lockstep/cli/algorithm_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::cli {
namespace {

using plan::Algorithm;
using plan::Collective;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class AlgorithmFile : public testing::Test {
 protected:
  plan::TunedTable read(const std::string& text) {
    std::ofstream(path()) << text;
    return read_algorithm_file(path());
  }

  /// The refusal, from the line's number on.
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const UsageError& error) {
      const std::string what = error.what();
      return what.substr(std::min(what.size(), path().size() + 1));
    }
    return "accepted";
  }

  /// Of a file with one good section for 4 ranks and `rows`, which start in line 6.
  std::string refusal_of_rows(const std::string& rows) {
    return refusal("schema = 1\n[[tables]]\nengine = \"shm\"\nranks = 4\nhosts = 1\n" + rows);
  }

  std::string path() const { return here_.file("t.toml"); }

  files::TempFolder here_{"algorithms"};
};

plan::TunedTable two_sections() {
  plan::TunedTable table;
  table.push_back({.where = {.engine = "mpi", .ranks = 8, .hosts = 2},
                   .machine = "a \"quoted\" one",
                   .rows = {}});
  table[0].rows[Collective::all_reduce] = {
      {Algorithm::binomial,
       2048,
       {{256, {{Algorithm::direct, 9.25, 0.5}, {Algorithm::binomial, 7.5, 0}}},
        {2048, {{Algorithm::direct, 12, 0.25}, {Algorithm::binomial, 10.75, 1}}}}},
      {.algorithm = Algorithm::hierarchical, .measured = {}}};
  table[0].rows[Collective::broadcast] = {{.algorithm = Algorithm::binomial, .measured = {}}};
  table.push_back({.where = {.engine = "threads", .ranks = 3, .hosts = 1, .modelled = true},
                   .machine = "",
                   .rows = {}});
  return table;
}

TEST_F(AlgorithmFile, WhatIsWrittenReadsBack) {
  EXPECT_TRUE(read_algorithm_file_if_any(path()).empty());
  write_algorithm_file(path(), two_sections());
  EXPECT_EQ(read_algorithm_file(path()), two_sections());
  EXPECT_EQ(read_algorithm_file_if_any(path()), two_sections());
  write_algorithm_file(path(), {});
  EXPECT_TRUE(read_algorithm_file(path()).empty());
}

TEST_F(AlgorithmFile, RefusesWhatIsNoneOrAnother) {
  EXPECT_THROW(read_algorithm_file(here_.file("none.toml")), UsageError);
  EXPECT_THAT(refusal("schema = \n"), HasSubstr("1: no TOML"));
  EXPECT_THAT(refusal("[[tables]]\n"), StartsWith("1: there is no schema"));
  const std::string another = refusal("# mine\nschema = 2\n");
  EXPECT_THAT(another, StartsWith("2: this lockstep reads schema 1"));
  EXPECT_THAT(another, HasSubstr("lockstep bench --tune FILE"));
  EXPECT_THAT(refusal("schema = 1\ntable = 3\n"), StartsWith("2: there is no \"table\""));
  EXPECT_THAT(refusal("schema = 1\ntables = 3\n"), StartsWith("2: "));
}

TEST_F(AlgorithmFile, RefusesSectionsThatAreForNobody) {
  const auto with = [&](const std::string& keys) {
    return refusal("schema = 1\n[[tables]]\n" + keys);
  };
  EXPECT_THAT(with("ranks = 2\nhosts = 1\n"), StartsWith("2: there is no engine"));
  EXPECT_THAT(with("engine = \"tcp\"\nranks = 2\nhosts = 1\n"),
              StartsWith("3: there is no engine \"tcp\""));
  EXPECT_THAT(with("engine = \"shm\"\nranks = 0\nhosts = 1\n"), StartsWith("4: ranks"));
  EXPECT_THAT(with("engine = \"shm\"\nranks = \"2\"\nhosts = 1\n"), StartsWith("4: ranks"));
  EXPECT_THAT(with("engine = \"shm\"\nranks = 2\n"), StartsWith("2: there is no hosts"));
  EXPECT_THAT(with("engine = \"shm\"\nranks = 4\nhosts = 3\n"),
              StartsWith("5: 4 ranks are no equal shares of 3 hosts"));
  EXPECT_THAT(with("engine = \"shm\"\nranks = 2\nhosts = 1\nmodelled = 1\n"), StartsWith("6: "));
  const std::string one = "[[tables]]\nengine = \"shm\"\nranks = 2\nhosts = 1\n";
  EXPECT_THAT(refusal("schema = 1\n" + one + one),
              StartsWith("6: a second table for shm, 2 ranks"));
}

TEST_F(AlgorithmFile, RefusesUnknownOperationsAndAlgorithmsByLine) {
  EXPECT_THAT(refusal_of_rows("[[tables.all_reduc]]\nalgorithm = \"direct\"\n"),
              HasSubstr("Did you mean \"all_reduce\"?"));
  EXPECT_THAT(refusal_of_rows("[[tables.all_to_all]]\nalgorithm = \"direct\"\n"),
              StartsWith("6: there is no \"all_to_all\""));
  const std::string unknown = refusal_of_rows("[[tables.all_reduce]]\nalgorithm = \"bruck\"\n");
  EXPECT_THAT(unknown, StartsWith("7: all_reduce has no algorithm \"bruck\""));
  EXPECT_THAT(unknown, HasSubstr("binomial"));
  EXPECT_THAT(refusal_of_rows("[[tables.all_reduce]]\nup_to_bytes = 8\n"),
              StartsWith("6: a row without an algorithm"));
  EXPECT_THAT(refusal_of_rows("[[tables.all_reduce]]\nalgorithm = \"direct\"\nupto = 8\n"),
              StartsWith("8: there is no \"upto\" in a row"));
}

TEST_F(AlgorithmFile, RefusesAnAlgorithmThatWouldChangeTheBits) {
  const std::string ring = refusal_of_rows("[[tables.all_reduce]]\nalgorithm = \"ring\"\n");
  EXPECT_THAT(ring, StartsWith("7: ring adds in another order than the sum tree on shm, 4 ranks"));
  EXPECT_THAT(ring, HasSubstr("direct, halving, binomial and hierarchical"));
  EXPECT_EQ(refusal_of_rows("[[tables.all_gather]]\nalgorithm = \"ring\"\n"), "accepted");
  EXPECT_EQ(refusal("schema = 1\n[[tables]]\nengine = \"shm\"\nranks = 2\nhosts = 1\n"
                    "[[tables.all_reduce]]\nalgorithm = \"ring\"\n"),
            "accepted")
      << "two terms have one order";
}

TEST_F(AlgorithmFile, RowsRiseAndTheLastHasNoEnd) {
  const auto row = [](const std::string& more) {
    return "[[tables.all_reduce]]\nalgorithm = \"direct\"\n" + more;
  };
  EXPECT_EQ(refusal_of_rows(row("up_to_bytes = 8\n") + row("up_to_bytes = 9\n") + row("")),
            "accepted");
  EXPECT_THAT(refusal_of_rows(row("up_to_bytes = 8\n") + row("up_to_bytes = 8\n")),
              StartsWith("11: up_to_bytes"));
  EXPECT_THAT(refusal_of_rows(row("") + row("")), StartsWith("8: a row after one"));
  EXPECT_THAT(refusal_of_rows(row("up_to_bytes = -1\n")), StartsWith("8: up_to_bytes"));
  EXPECT_THAT(refusal_of_rows(row("measured_us = [{ bytes = 8, direct = 3 }]\n")),
              StartsWith("8: a time is no pair"));
  EXPECT_THAT(refusal_of_rows(row("measured_us = [{ bytes = 8, dirct = [3, 1] }]\n")),
              StartsWith("8: all_reduce has no algorithm \"dirct\""));
}

TEST_F(AlgorithmFile, ARunFollowsTheSectionForItsRanks) {
  std::ofstream(path()) << "schema = 1\n[[tables]]\nengine = \"shm\"\nranks = 4\nhosts = 2\n"
                           "[[tables.all_reduce]]\nalgorithm = \"halving\"\nup_to_bytes = 4096\n"
                           "[[tables.all_reduce]]\nalgorithm = \"hierarchical\"\n";
  plan::TrainConfig config;
  EXPECT_EQ(follow_table(config, 4, 2), "");
  config.comm.table = path();
  EXPECT_EQ(follow_table(config, 4, 2),
            path() + " for shm, 4 ranks on 2 hosts: all_reduce: halving to 4.0 KiB, hierarchical");
  EXPECT_EQ(config.algorithms.choose(Collective::all_reduce, 4096), Algorithm::halving);
  EXPECT_EQ(config.algorithms.hosts, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  // As the ranks get it.
  EXPECT_EQ(plan::from_json(plan::to_json(config)).algorithms, config.algorithms);

  EXPECT_THAT(follow_table(config, 2, 1), HasSubstr("nothing for shm, 2 ranks on 1 host"));
  EXPECT_TRUE(config.algorithms.rules.empty());
  EXPECT_THAT(follow_table(config, 3, 0), HasSubstr("unequal sizes: built-in rules"));
  config.comm.algorithm = "binomial";
  EXPECT_THAT(follow_table(config, 4, 2), HasSubstr("sums by binomial, whatever"));
  EXPECT_TRUE(config.algorithms.rules.empty());
  config.comm.algorithm = "auto";
  config.comm.table = here_.file("none.toml");
  EXPECT_THROW(follow_table(config, 4, 2), UsageError);
}

}  // namespace
}  // namespace lockstep::cli
