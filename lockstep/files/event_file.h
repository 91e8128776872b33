/// A TensorBoard event file: curves of a run, for `tensorboard --logdir`.
///
///   record  uint64 length | masked CRC-32C of the length | data | masked CRC-32C of the data
///   data    a protobuf Event: wall time, then the file version (first record) or step and scalar
///
/// Tags with a slash ("train/loss") are grouped by what stands before it.
/// Source  tensorboard's record_writer.py, event.proto, summary.proto
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::files {

class EventFile {
 public:
  /// Makes `folder` if need be, and in it events.out.tfevents.SECONDS.HOST.PID.N, a name that no
  /// other file has. Throws StateError naming the file and the reason.
  explicit EventFile(const std::string& folder);
  /// Flushes; what cannot be written is lost in silence, so call flush() first.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  /// The run goes on with `step`: readers drop the points of earlier files from there on.
  void add_restart(int64_t step);
  /// Adds a point to the curve `tag`, now. TensorBoard stores a float. Stays in memory until
  /// flush(), or until there are 64 KiB.
  void add_scalar(const std::string& tag, int64_t step, double value);

  /// Hands everything to the system, so that a reader sees it. Throws StateError naming file, bytes
  /// and the reason; the file then ends with a whole record, and the points not written stay here.
  void flush();

 private:
  std::string path_;
  std::string pending_;  // whole records
  int64_t written_ = 0;
  int fd_ = -1;
};

namespace detail {

/// The protobuf Events, and their record.
std::string version_event(double wall_time);
std::string restart_event(double wall_time, int64_t step);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);
std::string event_record(std::string_view event);

}  // namespace detail
}  // namespace lockstep::files
