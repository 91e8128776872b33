#include "lockstep/train/detail/earlier_lines.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/atomic_file.h"

namespace lockstep::detail {
namespace {

/// Of the line; -1: it is no whole one.
int64_t step_of(const nlohmann::json& line) {
  if (!line.is_object()) return -1;
  const auto step = line.find("step");
  return step != line.end() && step->is_number_integer() ? step->get<int64_t>() : -1;
}

}  // namespace

int64_t keep_earlier_lines(const std::string& path, int64_t last_step) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    if (errno == ENOENT) return 0;
    throw StateError(base::str("cannot read ", path, ": ", std::strerror(errno), "."));
  }
  files::AtomicFile kept(path);
  bool all = true;
  int64_t evaluated = 0;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const int64_t step = step_of(json);
    const bool keep = 0 <= step && step <= last_step;
    if (keep && json.contains("val_loss")) evaluated = step;
    // Without its line feed the last one may still be whole: it is written again with it.
    all = all && keep && !in.eof();
    if (keep) kept.write(line + '\n');
  }
  if (!all) kept.commit();
  return evaluated;
}

}  // namespace lockstep::detail
