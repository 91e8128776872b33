#include "lockstep/train/run_log.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep {

RunLog::RunLog(const RunLogOptions& options)
    : options_(options), terminal_(::isatty(options.console_fd) == 1) {
  const std::string path = options.folder + "/metrics.jsonl";
  metrics_.open(path);
  if (!metrics_) {
    throw StateError(base::str(path, ": cannot be written: ", std::strerror(errno), "."));
  }
  if (options.tensorboard) events_ = std::make_unique<files::EventFile>(options.folder);
}

void RunLog::step(const StepReport& report) {
  seconds_ += report.seconds;
  ++steps_;
  write_line(nlohmann::json{{"step", report.step},
                            {"loss", report.loss},
                            {"grad_norm", report.grad_norm},
                            {"lr", report.lr},
                            {"seconds", report.seconds},
                            {"tokens", report.tokens}}
                 .dump());
  with_events([&](files::EventFile& events) {
    events.add_scalar("train/loss", report.step, report.loss);
    events.add_scalar("train/grad_norm", report.step, report.grad_norm);
    events.add_scalar("train/learning_rate", report.step, report.lr);
    events.add_scalar("speed/tokens_per_second", report.step, report.tokens_per_second);
    events.add_scalar("speed/mfu", report.step, report.mfu);
    events.add_scalar("memory/bytes", report.step, static_cast<double>(report.memory_bytes));
  });
  const bool due = options_.every > 0 && report.step % options_.every == 0;
  if (terminal_ || due || report.step == options_.steps) progress(report);
  if (due) with_events([](files::EventFile& events) { events.flush(); });
}

void RunLog::progress(const StepReport& report) {
  const double left =
      seconds_ / static_cast<double>(steps_) * static_cast<double>(options_.steps - report.step);
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(),
                "step %lld/%lld | loss %.4f | grad %.3f | lr %.2e | %.0f ms | %s tokens/s | MFU "
                "%.0f %% | %s | comm %.1f %%, %.0f %% of it hidden | %s left",
                static_cast<long long>(report.step), static_cast<long long>(options_.steps),
                report.loss, report.grad_norm, report.lr, 1e3 * report.seconds,
                base::with_commas(static_cast<int64_t>(report.tokens_per_second)).c_str(),
                1e2 * report.mfu, base::bytes_text(report.memory_bytes).c_str(),
                1e2 * report.comm_share, 1e2 * report.comm_hidden,
                base::duration_text(left).c_str());
  if (terminal_) {
    ::dprintf(options_.console_fd, "\r\033[K%s", line.data());
    line_open_ = true;
    if (report.step == options_.steps) say("");
  } else {
    say(line.data());
  }
}

void RunLog::evaluation(int64_t step, double val_loss) {
  write_line(nlohmann::json{{"step", step}, {"val_loss", val_loss}}.dump());
  with_events([&](files::EventFile& events) {
    events.add_scalar("validation/loss", step, val_loss);
    events.flush();
  });
  std::array<char, 96> line{};
  std::snprintf(line.data(), line.size(), "step %lld/%lld | validation loss %.4f",
                static_cast<long long>(step), static_cast<long long>(options_.steps), val_loss);
  say(line.data());
}

void RunLog::with_events(const std::function<void(files::EventFile&)>& write) {
  if (!events_) return;
  try {
    write(*events_);
  } catch (const StateError& error) {
    events_.reset();
    say(base::str("warning: no more TensorBoard events: ", error.what()));
  }
}

void RunLog::say(const std::string& line) {
  if (line_open_) ::dprintf(options_.console_fd, "\n");
  line_open_ = false;
  if (!line.empty()) ::dprintf(options_.console_fd, "%s\n", line.c_str());
}

void RunLog::write_line(const std::string& json) {
  metrics_ << json << '\n' << std::flush;
  if (!metrics_) {
    throw StateError(base::str(options_.folder,
                               "/metrics.jsonl: cannot be written: ", std::strerror(errno),
                               ". Free space on the disk, or choose another --set run.dir."));
  }
}

}  // namespace lockstep
