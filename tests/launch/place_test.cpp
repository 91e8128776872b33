// Where a rank stands: launchers' variables as maps.

#include "lockstep/launch/place.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

using Variables = std::map<std::string, std::string>;

Place place_of(const Variables& variables) {
  return place_from([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal_of(const Variables& variables) {
  try {
    place_of(variables);
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

void expect_ranks(const Place& place, int rank, int world, int local_rank, int local_size) {
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.world_size, world);
  EXPECT_EQ(place.local_rank, local_rank);
  EXPECT_EQ(place.local_size, local_size);
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node7"},
                             {"MASTER_PORT", "29501"},
                             {"TORCHELASTIC_RUN_ID", "7f3a"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "9"},  {"PMIX_NAMESPACE", "1236008961"}};
const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "4"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_NTASKS", "16"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_STEP_NODELIST", "node[7-9,12]"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Place, WithoutALauncherIsAWorldOfOne) {
  const Place place = place_of({{"WORLD_SIZE", "4"}, {"HOME", "/root"}});
  EXPECT_EQ(place.launcher, Launcher::none);
  expect_ranks(place, 0, 1, 0, 1);
}

TEST(Place, OfTorchrun) {
  const Place place = place_of(kTorchrun);
  EXPECT_EQ(place.launcher, Launcher::torchrun);
  expect_ranks(place, 5, 8, 1, 4);
  EXPECT_EQ(place.node_rank, 1);
  EXPECT_EQ(place.host, "node7");
  EXPECT_EQ(place.port, 29501);
  EXPECT_EQ(place.job_id, "7f3a");
  EXPECT_EQ(place.restart_count, 2);
  EXPECT_EQ(place.rank_variable, "RANK");
  // The four that env:// needs, set by hand: all ranks are here.
  expect_ranks(place_of({{"RANK", "1"}, {"WORLD_SIZE", "3"}}), 1, 3, 1, 3);
}

TEST(Place, OfOpenMpiAndMpich) {
  const Place open_mpi = place_of(kOpenMpi);
  EXPECT_EQ(open_mpi.launcher, Launcher::open_mpi);
  expect_ranks(open_mpi, 3, 4, 1, 2);
  EXPECT_EQ(open_mpi.node_rank, -1);
  EXPECT_EQ(open_mpi.job_id, "1236008961");
  const Place mpich = place_of(kMpich);
  EXPECT_EQ(mpich.launcher, Launcher::mpich);
  expect_ranks(mpich, 1, 2, 1, 2);
  EXPECT_EQ(place_of(without(kMpich, "MPI_LOCALNRANKS")).launcher, Launcher::none);
}

TEST(Place, OfASlurmStep) {
  const Place place = place_of(kSlurm);
  EXPECT_EQ(place.launcher, Launcher::slurm);
  expect_ranks(place, 4, 7, 0, 2);
  EXPECT_EQ(place.node_rank, 2);
  EXPECT_EQ(place.host, "node7");
  EXPECT_EQ(place.job_id, "77.0");
  const Place last = place_of(
      with(kSlurm, {{"SLURM_PROCID", "6"}, {"SLURM_NODEID", "3"}, {"MASTER_ADDR", "head"}}));
  expect_ranks(last, 6, 7, 0, 1);
  EXPECT_EQ(last.host, "head");
}

TEST(Place, InsideAPlainSbatchScriptNothingWasLaunched) {
  EXPECT_EQ(place_of(without(kSlurm, "SLURM_STEP_ID")).launcher, Launcher::none);
  EXPECT_EQ(place_of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}})).launcher, Launcher::none);
}

TEST(Place, LooksInTheStatedOrder) {
  Variables all = with(with(with(kSlurm, kMpich), kOpenMpi), kTorchrun);
  all["LOCKSTEP_RANK"] = "1";
  all["LOCKSTEP_WORLD_SIZE"] = "2";
  EXPECT_EQ(place_of(all).launcher, Launcher::lockstep);
  all.erase("LOCKSTEP_RANK");
  all.erase("LOCKSTEP_WORLD_SIZE");
  EXPECT_EQ(place_of(all).launcher, Launcher::torchrun);
  all.erase("RANK");
  EXPECT_EQ(place_of(all).launcher, Launcher::open_mpi);
  all.erase("OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(place_of(all).launcher, Launcher::mpich);
  all.erase("PMI_RANK");
  EXPECT_EQ(place_of(all).launcher, Launcher::slurm);
}

TEST(Place, OneProcessForAllRanksHasNoRankOfItsOwn) {
  const Place place = place_of({{"LOCKSTEP_ENGINE", "threads"}, {"LOCKSTEP_WORLD_SIZE", "4"}});
  EXPECT_EQ(place.launcher, Launcher::lockstep);
  EXPECT_EQ(place.world_size, 4);
}

TEST(Place, RefusesWhatDoesNotFitNamingVariableAndValue) {
  const auto expect = [](const Variables& variables, const std::string& name,
                         const std::string& value) {
    const std::string refusal = refusal_of(variables);
    EXPECT_NE(refusal.find(name + "=\"" + value + "\""), std::string::npos)
        << name << ": " << refusal;
  };
  expect({{"RANK", "0"}}, "RANK", "0");
  expect(with(kTorchrun, {{"RANK", "8"}}), "RANK", "8");
  expect(with(kTorchrun, {{"RANK", "-1"}}), "RANK", "-1");
  expect(with(kTorchrun, {{"RANK", ""}}), "RANK", "");
  expect(with(kTorchrun, {{"WORLD_SIZE", "4x"}}), "WORLD_SIZE", "4x");
  expect(with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE", "0");
  expect(with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE", "99999999999");
  expect(with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK", "4");
  expect(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE", "9");
  expect(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}}), "LOCAL_RANK", "1");
  expect(with(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT", "70000");
  expect(without(kTorchrun, "LOCAL_RANK"), "RANK", "5");
  expect(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "four"}}), "OMPI_COMM_WORLD_RANK", "four");
  expect(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_RANK", "3");
  expect(with(kMpich, {{"PMI_RANK", "2"}}), "PMI_RANK", "2");
  expect(with(kSlurm, {{"SLURM_PROCID", "7"}}), "SLURM_PROCID", "7");
  expect(with(kSlurm, {{"SLURM_NODEID", "4"}}), "SLURM_NODEID", "4");
  expect(with(kSlurm, {{"SLURM_LOCALID", "2"}}), "SLURM_LOCALID", "2");
  expect(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}}), "SLURM_STEP_TASKS_PER_NODE",
         "2(x4)");
  expect(with(kSlurm, {{"SLURM_STEP_NODELIST", "node[7-"}}), "SLURM_STEP_NODELIST", "node[7-");
  expect({{"LOCKSTEP_RANK", "1"}}, "LOCKSTEP_RANK", "1");
}

RC_GTEST_PROP(PlaceProperty, EveryRankOfEveryLayoutIsRead, ()) {
  const auto counts =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 9)));
  int world = 0;
  std::string text;
  for (const int count : counts) {
    world += count;
    text += (text.empty() ? "" : ",") + std::to_string(count);
  }
  RC_PRE(world > 1);
  int rank = 0;
  for (int node = 0; node < static_cast<int>(counts.size()); ++node) {
    for (int local = 0; local < counts[node]; ++local, ++rank) {
      const auto as = [](int number) { return std::to_string(number); };
      const Place torchrun = place_of({{"RANK", as(rank)},
                                       {"WORLD_SIZE", as(world)},
                                       {"LOCAL_RANK", as(local)},
                                       {"LOCAL_WORLD_SIZE", as(counts[node])},
                                       {"GROUP_RANK", as(node)}});
      const Place slurm = place_of({{"SLURM_PROCID", as(rank)},
                                    {"SLURM_NTASKS", as(world)},
                                    {"SLURM_STEP_ID", "3"},
                                    {"SLURM_LOCALID", as(local)},
                                    {"SLURM_NODEID", as(node)},
                                    {"SLURM_TASKS_PER_NODE", text}});
      for (const Place& place : {torchrun, slurm}) {
        RC_ASSERT(place.rank == rank && place.world_size == world);
        RC_ASSERT(place.local_rank == local && place.local_size == counts[node]);
        RC_ASSERT(place.node_rank == node);
      }
    }
  }
}

RC_GTEST_PROP(PlaceProperty, AnyTextInAnyVariableIsReadOrRefused, ()) {
  Variables variables = *rc::gen::element(kTorchrun, kOpenMpi, kMpich, kSlurm);
  auto changed = variables.begin();
  std::advance(changed, *rc::gen::inRange<int>(0, static_cast<int>(variables.size())));
  changed->second =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("0123456789()x[],-. ab")));
  try {
    const Place place = place_of(variables);
    RC_ASSERT(0 <= place.rank && place.rank < place.world_size);
    RC_ASSERT(0 <= place.local_rank && place.local_rank < place.local_size);
    RC_ASSERT(place.local_size <= place.world_size);
  } catch (const EnvironmentError& error) {
    RC_ASSERT(std::string(error.what()).find(changed->first) != std::string::npos ||
              std::string(error.what()).find(changed->second) != std::string::npos);
  }
}

TEST(Place, SlurmsListsOfCounts) {
  const auto counts = [](const std::string& text) { return slurm_counts("T", text); };
  EXPECT_EQ(counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(counts("4"), std::vector<int>{4});
  EXPECT_EQ(counts("1,2(x2),3"), (std::vector<int>{1, 2, 2, 3}));
  for (const char* bad : {"", "x", "2(x3", "2(3)", "2(x)", "2,,1", "-1", " 2", "2(x9999999999)",
                          "2(x3)4", "99999999999999999999"}) {
    EXPECT_THROW(counts(bad), EnvironmentError) << bad;
  }
}

TEST(Place, SlurmsListsOfHosts) {
  const auto hosts = [](const std::string& text) { return slurm_hosts("T", text); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(hosts("node[7-10,12]"), (Names{"node7", "node8", "node9", "node10", "node12"}));
  EXPECT_EQ(hosts("login"), Names{"login"});
  EXPECT_EQ(hosts("a1,b[01-03],c"), (Names{"a1", "b01", "b02", "b03", "c"}));
  EXPECT_EQ(hosts("r[1-2]-n[3-4].x"), (Names{"r1-n3.x", "r1-n4.x", "r2-n3.x", "r2-n4.x"}));
  EXPECT_EQ(hosts("n[098-101]"), (Names{"n098", "n099", "n100", "n101"}));
  for (const char* bad : {"", "n[", "n]", "n[1-", "n[3-1]", "n[a]", "n[]", "a,,b", "n[1-9999999]",
                          "n[1-1048576][1-1048576]"}) {
    EXPECT_THROW(hosts(bad), EnvironmentError) << bad;
  }
}

}  // namespace
}  // namespace lockstep::launch
