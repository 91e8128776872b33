#include "lockstep/cli/arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <system_error>

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

/// Where the words stopped being understood: the innermost command that was named.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* inner = &app;
  while (!inner->get_subcommands().empty()) inner = inner->get_subcommands().front();
  return *inner;
}

/// A word that stands where one of the innermost command's own commands should; or nothing.
void refuse_unknown_command(const CLI::App& app) {
  const CLI::App& inner = innermost(app);
  const auto extras = app.remaining(/*recurse=*/true);
  if (extras.empty() || extras.front().starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* choice : inner.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(choice->get_name());
  }
  if (names.empty()) return;
  const std::string near = base::nearest(extras.front(), names);
  refuse(app, base::str("there is no ", &inner == &app ? "" : inner.get_name() + " ",
                        extras.front(), "; there is ", base::joined(names, " and "), ".",
                        near.empty() ? "" : base::str("\n  Did you mean ", near, "?")));
}

}  // namespace

CLI::Option* add_ranks(CLI::App& app, int& ranks, const std::string& description) {
  return app.add_option("-n,--ranks", ranks, description)
      ->check([&app](const std::string& text) -> std::string {
        int number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc() || end != text.data() + text.size()) {
          refuse(app, base::str("-n ", text, ": wants a whole number of ranks, 1 or more."));
        }
        return "";
      });
}

bool parse_arguments(CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ExtrasError&) {
    refuse_extra(app, app.remaining(/*recurse=*/true));
  } catch (const CLI::RequiredError& error) {
    refuse_unknown_command(app);
    refuse(app, error.what());
  } catch (const CLI::ParseError& error) {
    refuse(app, error.what());
  }
  return true;
}

}  // namespace lockstep::cli
