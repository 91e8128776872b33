#include "lockstep/cli/doctor.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/machine.h"
#include "lockstep/cli/topology_file.h"
#include "lockstep/cli/topology_report.h"

namespace lockstep::cli {
namespace {

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::note:
      return "note";
    case Verdict::missing:
      return "missing";
  }
  return "";
}

/// `text` with its further lines moved under the first.
std::string indented(std::string text, size_t columns) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    text.insert(at + 1, columns, ' ');
  }
  return text;
}

}  // namespace

int doctor_command(const std::vector<std::string>& args) {
  bool as_json = false;
  bool print_topology = false;
  TopologyQuestion question;
  CLI::App app("What this machine has for a run, and what to do about what it lacks.",
               "lockstep doctor");
  CLI::Option* ranks = add_ranks(app, question.ranks, "ranks to place (default: one on each core)");
  app.add_option("--topology", question.file, "place them on the hosts of this file, a TOML file");
  CLI::Option* mesh = app.add_option("--mesh", question.mesh,
                                     "check that their groups fit the links: \"pp=2 tp=4\"");
  app.add_flag("--print-topology", print_topology, "print the topology as such a file, and stop")
      ->excludes(ranks)
      ->excludes(mesh);
  app.add_flag("--json", as_json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;
  if (ranks->count() > 0 && question.ranks < 1) {
    throw UsageError(base::str("-n ", question.ranks, ": a job has at least 1 rank"));
  }
  if (print_topology) {
    std::fputs(topology_as_toml(topology_of(question)).c_str(), stdout);
    return 0;
  }

  std::vector<Finding> findings = inspect_topology(question);
  for (Finding& finding : inspect_machine()) findings.push_back(std::move(finding));
  const bool ready = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::missing;
  });
  if (as_json) {
    nlohmann::json checks = nlohmann::json::array();
    for (const Finding& finding : findings) {
      checks.push_back({{"name", finding.name},
                        {"verdict", word_of(finding.verdict)},
                        {"found", finding.found},
                        {"help", finding.help}});
    }
    std::printf("%s\n", nlohmann::json({{"ready", ready}, {"checks", checks}}).dump().c_str());
  } else {
    constexpr size_t kFoundColumn = 25;
    for (const Finding& finding : findings) {
      std::printf("%-9s%-16s%s\n", word_of(finding.verdict), finding.name.c_str(),
                  indented(finding.found, kFoundColumn).c_str());
      if (!finding.help.empty()) {
        std::printf("%*sto do: %s\n", static_cast<int>(kFoundColumn), "", finding.help.c_str());
      }
    }
  }
  return ready ? 0 : EnvironmentError("").exit_code();
}

}  // namespace lockstep::cli
