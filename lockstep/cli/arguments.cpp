#include "lockstep/cli/arguments.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& what) {
  throw UsageError(base::str(app.get_name(), ": ", what, "\n  `", app.get_name(),
                             " --help` lists what it takes."));
}

[[noreturn]] void refuse_extra(const CLI::App& app, const std::vector<std::string>& extras) {
  const std::string extra = extras.empty() ? "?" : extras.front();
  if (!extra.starts_with('-')) refuse(app, base::str("\"", extra, "\" is one argument too many."));
  const std::string flag = extra.substr(0, extra.find('='));
  const std::string near = base::nearest(flag, flags_of(app));
  refuse(app, near.empty() ? base::str("there is no flag ", flag, ".")
                           : base::str("there is no flag ", flag, "; did you mean ", near, "?"));
}

}  // namespace

bool parse_arguments(CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ExtrasError&) {
    refuse_extra(app, app.remaining());
  } catch (const CLI::ParseError& error) {
    refuse(app, error.what());
  }
  return true;
}

}  // namespace lockstep::cli
