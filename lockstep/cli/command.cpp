#include "lockstep/cli/command.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/cli/bench.h"
#include "lockstep/cli/bisect.h"
#include "lockstep/cli/checkpoint.h"
#include "lockstep/cli/data.h"
#include "lockstep/cli/doctor.h"
#include "lockstep/cli/eval.h"
#include "lockstep/cli/generate.h"
#include "lockstep/cli/run.h"
#include "lockstep/cli/schedule.h"
#include "lockstep/cli/tokenizer.h"
#include "lockstep/cli/trace.h"
#include "lockstep/cli/train.h"
#include "lockstep/cli/verify.h"

namespace lockstep::cli {
namespace {

struct Subcommand {
  std::string name;
  std::string summary;
  int (*run)(const std::vector<std::string>& args);
};

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> all = {
      {"train", "train a model on one or several ranks", train_command},
      {"verify", "whether a layout computes what one rank computes", verify_command},
      {"bisect", "the first step and tensor in which two runs differ", bisect_command},
      {"eval", "validation loss of a run's or a file's weights", eval_command},
      {"generate", "text from a run's or a file's weights", generate_command},
      {"checkpoint", "look at checkpoints, prove them, compare them, move them",
       checkpoint_command},
      {"bench", "how fast collectives are here, in nccl-tests' columns", bench_command},
      {"run", "start any program as the ranks of a job, as torchrun would", run_command_of_ranks},
      {"schedule", "a pipeline schedule as a picture, with its bubble", schedule_command},
      {"trace", "what each rank of a run did, and when, as a picture", trace_command},
      {"data", "make training data, and look at them", data_command},
      {"tokenizer", "text to token ids, and back", tokenizer_command},
      {"doctor", "what this machine has, and what to do about what it lacks", doctor_command},
  };
  return all;
}

std::string usage() {
  std::string text =
      "lockstep: distributed training with the same bits on any layout.\n\n"
      "  lockstep train --preset nano -n 2\n\n"
      "Commands (each knows --help):\n";
  for (const Subcommand& command : subcommands()) {
    text +=
        "  " + command.name + std::string(12 - command.name.size(), ' ') + command.summary + "\n";
  }
  return text + "  --version   the version\n";
}

void ignore_signals_of_writes() {
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaction(signal, &ignored, nullptr);
}

int run_and_say_what_failed(const std::vector<std::string>& args) {
  try {
    return run_command(args);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    const OutOfMemory error("lockstep: this machine has no memory left.");
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 1;
  }
}

/// Whether all that was meant for stdout has gone there. If nothing was, a closed one is fine.
bool stdout_took_everything() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  int reason = errno;
  if (flushed && std::ferror(stdout) == 0 && std::cout) return true;
  if (reason == 0) {
    // The write that failed came before, and took its reason with it: one more has it again.
    std::clearerr(stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
    reason = errno;
  }
  std::fprintf(stderr, "lockstep: cannot write the result to stdout: %s.\n",
               reason != 0 ? std::strerror(reason) : "an earlier write failed");
  return false;
}

}  // namespace

int run_command(const std::vector<std::string>& args) {
  if (args.empty()) {
    std::fputs(usage().c_str(), stderr);
    return UsageError("").exit_code();
  }
  const std::string& name = args.front();
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  if (name == "--version" || name == "-V") {
    std::printf("lockstep %s\n", kVersion);
    return 0;
  }
  // What bench_command starts as its ranks: no command for users, so no line in the usage.
  if (name == "bench-rank") return bench_rank_command({args.begin() + 1, args.end()});
  std::vector<std::string> names = {"--help", "--version"};
  for (const Subcommand& command : subcommands()) {
    if (command.name == name) return command.run({args.begin() + 1, args.end()});
    names.push_back(command.name);
  }
  const std::string near = base::nearest(name, names);
  throw UsageError(base::str("there is no ", name.starts_with('-') ? "flag " : "command ", name,
                             ".", near.empty() ? "" : base::str("\n  Did you mean ", near, "?"),
                             "\n  `lockstep --help` lists the commands."));
}

int run_program(const std::vector<std::string>& args) {
  ignore_signals_of_writes();
  const int code = run_and_say_what_failed(args);
  if (stdout_took_everything() || code != 0) return code;
  return EnvironmentError("").exit_code();
}

}  // namespace lockstep::cli
