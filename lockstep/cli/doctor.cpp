#include "lockstep/cli/doctor.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/machine.h"

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
  CLI::App app("What this machine has for a run, and what to do about what it lacks.",
               "lockstep doctor");
  app.add_flag("--json", as_json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;

  const std::vector<Finding> findings = inspect_machine();
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
