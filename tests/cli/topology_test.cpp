#include <gtest/gtest.h>

#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/cli/topology_file.h"
#include "lockstep/cli/topology_report.h"
#include "lockstep/files/temp_folder.h"
#include "tests/plan/machines.h"

namespace lockstep::cli {
namespace {

using plan::machines;
using plan::Topology;

class TopologyFileTest : public testing::Test {
 protected:
  Topology read(const std::string& text) {
    std::ofstream(path()) << text;
    return read_topology(path());
  }

  /// The refusal, from the file's name on.
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const UsageError& error) {
      const std::string what = error.what();
      return what.substr(std::min(what.size(), here_.path().size() + 1));
    }
    return "accepted";
  }

  /// Of a file with one good host and `links`.
  std::string refusal_of_links(const std::string& links) {
    return refusal("[[hosts]]\nnames = [\"a\"]\npackages = [[\"2\"]]\n" + links);
  }

  std::string path() const { return here_.file("c.toml"); }

  files::TempFolder here_{"topology"};
};

TEST_F(TopologyFileTest, SaysHostsAndLinks) {
  const Topology topology = read(
      "[[hosts]]\n"
      "names = [\"h0\", \"h1\"]\n"
      "packages = [[\"2x2\", \"2x2\"]]\n"
      "[links.network]\n"
      "latency_us = 5\n"
      "gb_per_s = 12.5\n");
  Topology expected = machines(2, {.packages = 1, .caches = 2, .cores = 2, .threads = 2});
  expected.links[3] = {.latency_s = 5e-6, .bytes_per_second = 12.5e9, .assumed = false};
  EXPECT_EQ(topology, expected);
}

TEST_F(TopologyFileTest, HostsMayBeUnlikeAndSoMayTheirCores) {
  const Topology topology = read(
      "[[hosts]]\n"
      "names = [\"a\"]\n"
      "packages = [[\"1x2 2\"], [\"1\", \"1x3\"]]\n"
      "[[hosts]]\n"
      "names = [\"b\"]\n"
      "packages = [[\"1\"]]\n");
  ASSERT_EQ(topology.hosts.size(), 2u);
  const std::vector<plan::Package> packages = {
      {{{{{{0, 5}}, {{1}}, {{2}}}}}},
      {{{{{{3}}}}, {{{{4, 6, 7}}}}}},
  };
  EXPECT_EQ(topology.hosts[0].packages, packages);
  EXPECT_EQ(topology.hosts[1].hardware_threads(), 1);
}

TEST_F(TopologyFileTest, WhatIsWrittenReadsBack) {
  Topology topology = machines(3, {.packages = 2, .caches = 3, .cores = 5, .threads = 2});
  topology.hosts.push_back(machines(1, {.cores = 3}).hosts[0]);
  topology.hosts.back().name = "a \"quoted\" one";
  EXPECT_EQ(read(topology_as_toml(topology)), topology);
  // Any figures of a file come back as they stood there.
  int tenths = 1;
  for (plan::Link& link : topology.links) {
    link = {.latency_s = tenths / 10.0 / 1e6, .bytes_per_second = 7 * tenths / 10.0 * 1e9};
    tenths += 2;
  }
  EXPECT_EQ(read(topology_as_toml(topology)), topology);
}

TEST_F(TopologyFileTest, WhatIsWrittenIsShort) {
  Topology topology = machines(2, {.packages = 2, .cores = 4, .threads = 2});
  topology.hosts[1].packages[1].caches[0].cores[3].cpus.pop_back();
  for (plan::Link& link : topology.links) link = {.latency_s = 0.3e-6, .bytes_per_second = 2e9};
  topology.links[3].assumed = true;
  EXPECT_EQ(topology_as_toml(topology),
            "# Hosts that are alike; packages, in each its last-level caches: cores x threads.\n"
            "[[hosts]]\nnames = [\"h0\"]\npackages = [[\"4x2\"],[\"4x2\"]]\n\n"
            "[[hosts]]\nnames = [\"h1\"]\npackages = [[\"4x2\"],[\"3x2 1\"]]\n\n"
            "# What joins two ranks that share no more than this; 1 GB is 10^9 bytes.\n"
            "[links.cache]\nlatency_us = 0.3\ngb_per_s = 2\n"
            "[links.package]\nlatency_us = 0.3\ngb_per_s = 2\n"
            "[links.host]\nlatency_us = 0.3\ngb_per_s = 2\n"
            "# [links.network]  # assumed\n# latency_us = 0.3\n# gb_per_s = 2\n");
}

TEST_F(TopologyFileTest, RefusesHostsByLine) {
  const std::string no_hosts =
      "c.toml: there are no hosts.\n"
      "  Write [[hosts]] with names = [\"node0\"] and packages = [[\"8\"]].";
  EXPECT_EQ(refusal(""), no_hosts);
  EXPECT_EQ(refusal("hosts = 3\n"), no_hosts);
  EXPECT_EQ(refusal("hosts = [3]\n"), no_hosts);
  EXPECT_EQ(refusal("[hosts]\nnames = [\"a\"]\n"), no_hosts);
  EXPECT_EQ(refusal("[[host]]\n"),
            "c.toml:1: there is no \"host\" in a topology.\n  Did you mean \"hosts\"?");
  EXPECT_EQ(refusal("[[hosts]]\nnames = [\"a\"]\npackages = [[\"2\"]]\nsockets = 2\n"),
            "c.toml:4: there is no \"hosts.sockets\" in a topology.\n"
            "  There is hosts.names and packages.");
  const std::string packages =
      "\n  Write a list for each package, in it its last-level caches: "
      "packages = [[\"8x2\", \"8x2\"]].";
  EXPECT_EQ(refusal("\n[[hosts]]\nnames = [\"a\"]\n"),
            "c.toml:2: hosts without packages." + packages);
  const auto wants_list = "c.toml:3: hosts.packages wants a list that is not empty." + packages;
  for (const char* text : {"8", "[]", "[[]]", "[\"8x2\"]", "[[\"2\"], []]"}) {
    EXPECT_EQ(refusal(std::string("[[hosts]]\nnames = [\"a\"]\npackages = ") + text + "\n"),
              wants_list);
  }
  EXPECT_EQ(refusal("[[hosts]]\npackages = [[\"2\"]]\n"),
            "c.toml:1: hosts without names.\n  Write names = [\"node0\", \"node1\"].");
  EXPECT_EQ(refusal("[[hosts]]\npackages = [[\"2\"]]\nnames = [\"a\", 3]\n"),
            "c.toml:3: hosts.names wants texts that are not empty.\n"
            "  Write names = [\"node0\", \"node1\"].");
  EXPECT_EQ(refusal("[[hosts]]\npackages = [[\"2\"]]\nnames = [\"a\",\n \"a\"]\n"),
            "c.toml:4: the host \"a\" comes twice.\n  Give each host a name of its own.");
}

TEST_F(TopologyFileTest, RefusesCachesByLine) {
  const auto of_cache = [&](const std::string& cache) {
    return refusal("[[hosts]]\nnames = [\"a\"]\npackages = [[\"2\",\n" + cache + "]]\n");
  };
  const std::string help =
      "\n  A cache is written CORES or CORESxTHREADS: \"8\", \"8x2\", \"4x2 8x1\".";
  EXPECT_EQ(of_cache("\"\""), "c.toml:4: hosts.packages has a cache without cores." + help);
  EXPECT_EQ(of_cache("8"), "c.toml:4: hosts.packages has a cache without cores." + help);
  EXPECT_EQ(of_cache("\"8y2\""),
            "c.toml:4: hosts.packages: in \"8y2\" \"8y2\" is no number from 1 to 4096." + help);
  EXPECT_EQ(of_cache("\"8x\""),
            "c.toml:4: hosts.packages: in \"8x\" \"\" is no number from 1 to 64." + help);
  EXPECT_EQ(of_cache("\"1 0x2\""),
            "c.toml:4: hosts.packages: in \"0x2\" \"0\" is no number from 1 to 4096." + help);
  EXPECT_EQ(of_cache("\"8x65\""),
            "c.toml:4: hosts.packages: in \"8x65\" \"65\" is no number from 1 to 64." + help);
  EXPECT_EQ(of_cache("\"4096x64\""), "accepted");
}

TEST_F(TopologyFileTest, RefusesLinksByLine) {
  const std::string help = "\n  A link has latency_us and gb_per_s (10^9 bytes), numbers above 0.";
  EXPECT_EQ(refusal_of_links("[links.netwrk]\n"),
            "c.toml:4: there is no \"links.netwrk\" in a topology.\n"
            "  Did you mean \"links.network\"?");
  EXPECT_EQ(refusal_of_links("[links.host]\nlatency = 3\ngb_per_s = 3\n"),
            "c.toml:5: there is no \"links.host.latency\" in a topology.\n"
            "  There is links.host.latency_us and gb_per_s.");
  EXPECT_EQ(refusal_of_links("[links.host]\nlatency_us = 3\n"),
            "c.toml:4: links.host has no gb_per_s." + help);
  for (const char* number : {"0", "-1", "nan", "inf", "\"3\""}) {
    EXPECT_EQ(refusal_of_links(std::string("[links.cache]\ngb_per_s = 2\nlatency_us = ") + number),
              "c.toml:6: links.cache.latency_us is no number above 0." + help);
  }
  EXPECT_EQ(refusal_of_links("[links]\ncache = 3\n"),
            "c.toml:5: links.cache is no section.\n  Write [links.cache].");
  EXPECT_EQ(refusal("links = 3\n[[hosts]]\nnames = [\"a\"]\npackages = [[\"2\"]]\n"),
            "c.toml:1: links is no section.\n  Write [links.network].");
}

TEST_F(TopologyFileTest, RefusesWhatIsNoTomlFile) {
  EXPECT_EQ(refusal("[[hosts\n").substr(0, 18), "c.toml:1: no TOML:");
  EXPECT_THROW(read_topology(here_.file("none")), UsageError);
  EXPECT_THROW(read_topology(here_.path()), UsageError);
}

TEST(TopologyReport, SaysHostsThatAreAlikeOnce) {
  Topology topology = machines(3, {.packages = 2, .cores = 4, .threads = 2});
  EXPECT_EQ(hosts_text(topology),
            "h0 to h2, 3 hosts with each 2 packages, 2 last-level caches, 8 cores, "
            "16 hardware threads");
  topology.hosts[1] = machines(1, {}).hosts[0];
  EXPECT_EQ(hosts_text(topology),
            "h0: 2 packages, 2 last-level caches, 8 cores, 16 hardware threads\n"
            "h0: 1 package, 1 last-level cache, 1 core, 1 hardware thread\n"
            "h2: 2 packages, 2 last-level caches, 8 cores, 16 hardware threads");
}

TEST(TopologyReport, SaysWhichRankSitsWhere) {
  const Topology topology = machines(2, {.packages = 2, .caches = 2, .cores = 2, .threads = 2});
  EXPECT_EQ(ranks_text(plan::place_ranks(topology, 11)),
            "ranks 0 to 1: h0, package 0, cache 0: cpus 0-1\n"
            "ranks 2 to 3: h0, package 0, cache 1: cpus 2-3\n"
            "ranks 4 to 5: h0, package 1, cache 0: cpus 4-5\n"
            "ranks 6 to 7: h0, package 1, cache 1: cpus 6-7\n"
            "ranks 8 to 9: h1, package 0, cache 0: cpus 0-1\n"
            "rank 10: h1, package 0, cache 1: cpu 2");
  EXPECT_EQ(ranks_text(plan::place_ranks(machines(1, {.cores = 3, .threads = 2}), 4)),
            "ranks 0 to 3: h0, package 0, cache 0: cpus 0, 3, 1-2");
}

TEST(TopologyReport, SaysTheLinksThatThereAre) {
  EXPECT_EQ(links_text(machines(1, {})), "");
  EXPECT_EQ(links_text(machines(1, {.threads = 2})), "links: cache 0.2 us, 20 GB/s (assumed)");
  EXPECT_EQ(links_text(machines(1, {.caches = 2})), "links: package 0.3 us, 12 GB/s (assumed)");
  EXPECT_EQ(links_text(machines(1, {.packages = 2})), "links: host 0.5 us, 8 GB/s (assumed)");
  Topology topology = machines(2, {.cores = 2});
  topology.links[3] = {.latency_s = 5e-6, .bytes_per_second = 12.5e9};
  EXPECT_EQ(links_text(topology),
            "links: cache 0.2 us, 20 GB/s (assumed); network 5 us, 12.5 GB/s");
}

}  // namespace
}  // namespace lockstep::cli
