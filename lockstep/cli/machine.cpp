#include "lockstep/cli/machine.h"

#include <sys/resource.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/capture.h"
#include "lockstep/cli/job.h"
#include "lockstep/input/token_file.h"
#include "lockstep/launch/blas_core.h"
#include "lockstep/launch/cores.h"
#include "lockstep/launch/rank_environment.h"
#include "lockstep/net/world.h"
#include "lockstep/plan/train_config.h"

namespace lockstep::cli {
namespace {

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Finding cores() {
  const size_t usable = launch::allowed_cores().size();
  return {"cores", Verdict::ok,
          base::str(usable, " for this process: up to ", usable, usable == 1 ? " rank" : " ranks",
                    " at full speed"),
          ""};
}

Finding instructions() {
  const std::string best = launch::best_cpu_capability();
  std::string found = best;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16")) found += ", bf16 products in hardware";
#endif
  if (best != "default") return {"instructions", Verdict::ok, found, ""};
  return {"instructions", Verdict::note, "neither AVX2 nor AVX-512: LibTorch's slow kernels", ""};
}

Finding matrix_products() {
  const std::string& core = launch::better_blas_core();
  if (core.empty()) return {"products", Verdict::ok, "OpenBLAS picks its own kernels", ""};
  return {
      "products", Verdict::note,
      "OpenBLAS does not know this processor; ranks are told to use its " + core + " kernels",
      "for programs of your own that no launcher of ours starts: export OPENBLAS_CORETYPE=" + core};
}

Finding memory() {
  const std::string meminfo = text_of_file("/proc/meminfo");
  const long long total = meminfo_bytes(meminfo, "MemTotal");
  const long long available = meminfo_bytes(meminfo, "MemAvailable");
  if (total < 0 || available < 0) {
    return {"memory", Verdict::note, "/proc/meminfo cannot be read", "mount /proc"};
  }
  return {"memory", Verdict::ok,
          base::str(base::bytes_text(available), " free of ", base::bytes_text(total)), ""};
}

Finding shared_memory() {
  try {
    const auto region = net::Region::create(2);
    const auto same = net::Region::attach(region->fd());
    return {"shared memory", Verdict::ok, "a region for ranks can be made and mapped", ""};
  } catch (const Error& error) {
    return {"shared memory", Verdict::missing, error.what(),
            "allow memfd_create and a large address space (`ulimit -v unlimited`), or run ranks as "
            "threads: --set comm.engine=threads"};
  }
}

Finding huge_pages() {
  const std::string path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string chosen = chosen_word(text_of_file(path));
  if (chosen == "always" || chosen == "within_size" || chosen == "advise" || chosen == "force") {
    return {"huge pages", Verdict::ok, "for shared memory: " + chosen, ""};
  }
  return {"huge pages", Verdict::note,
          "not for shared memory" + (chosen.empty() ? std::string() : ": " + chosen),
          "as root: echo advise > " + path};
}

Finding open_files() {
  constexpr rlim_t kEnough = 64;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found =
      limit.rlim_cur == RLIM_INFINITY ? std::string("no limit") : std::to_string(limit.rlim_cur);
  if (limit.rlim_cur >= kEnough) return {"open files", Verdict::ok, found, ""};
  return {"open files", Verdict::note, found, "ulimit -n 1024"};
}

Finding worker() {
  try {
    const Captured run =
        capture({worker_program(), "version"}, launch::rank_environment({.engine = "threads"}));
    if (run.exit_code == 0) return {"worker", Verdict::ok, run.output, ""};
    return {"worker", Verdict::missing,
            base::str("lockstep-worker ended with code ", run.exit_code, ": ", run.output),
            "install LibTorch (libtorch-dev), and see `ldd lockstep-worker`"};
  } catch (const Error& error) {
    return {"worker", Verdict::missing, error.what(), ""};
  }
}

Finding data() {
  const plan::TrainConfig config;
  try {
    const auto train = input::TokenFile::open(config.data.train);
    const auto valid = input::TokenFile::open(config.data.valid);
    return {"data", Verdict::ok,
            base::str(base::with_commas(train->size()), " + ", base::with_commas(valid->size()),
                      " tokens beside ", config.data.train),
            ""};
  } catch (const Error& error) {
    const std::string what = error.what();
    return {"data", Verdict::note, what.substr(0, what.find('\n')), "lockstep data prepare austen"};
  }
}

}  // namespace

long long meminfo_bytes(const std::string& meminfo, const std::string& key) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key + ":")) continue;
    const size_t digit = line.find_first_of("0123456789");
    long long kilobytes = -1;
    if (digit != std::string::npos) {
      std::from_chars(line.data() + digit, line.data() + line.size(), kilobytes);
    }
    return kilobytes < 0 ? -1 : kilobytes * 1024;
  }
  return -1;
}

long long available_memory() {
  return meminfo_bytes(text_of_file("/proc/meminfo"), "MemAvailable");
}

std::string chosen_word(const std::string& setting) {
  const size_t open = setting.find('[');
  const size_t close = setting.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return setting.substr(open + 1, close - open - 1);
}

std::vector<Finding> inspect_machine() {
  return {cores(),      instructions(), matrix_products(), memory(), shared_memory(),
          huge_pages(), open_files(),   worker(),          data()};
}

void require_memory(const plan::TrainConfig& config, int ranks) {
  const long long machine = meminfo_bytes(text_of_file("/proc/meminfo"), "MemTotal");
  const int64_t each = plan::state_bytes_per_rank(config, ranks);
  // In doubles: a misplaced zero may go beyond 64 bits.
  if (machine <= 0 || static_cast<double>(each) * ranks <= static_cast<double>(machine)) return;
  throw OutOfMemory(base::str(
      "a model of ", base::with_commas(plan::parameter_count(config)),
      " parameters does not fit: masters, gradients and the optimizer's state take ",
      base::bytes_text(each), " on each of ", ranks, ranks == 1 ? " rank" : " ranks",
      ", this machine has ", base::bytes_text(machine),
      ".\n  --set parallel.shard=zero3 divides it among the ranks, --set memory.offload=disk keeps "
      "most "
      "of it in a file. Smaller: --set model.layers, --set model.width, --set model.vocab."));
}

}  // namespace lockstep::cli
