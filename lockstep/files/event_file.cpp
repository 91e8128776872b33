#include "lockstep/files/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/crc32c.h"

namespace lockstep::files {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr size_t kPendingBytes = 64 * KiB;

double now_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "host";
  return name;
}

template <class Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

/// A protobuf varint: seven bits a byte, lowest first.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

/// A protobuf field that holds bytes: `tag` is (field number << 3 | 2).
std::string field(char tag, std::string_view bytes) {
  return tag + varint(bytes.size()) + std::string(bytes);
}

uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

}  // namespace

namespace detail {

std::string version_event(double wall_time) {
  return '\x09' + raw(wall_time) + field('\x1a', "brain.Event:2");
}

/// A SessionLog whose status is START.
std::string restart_event(double wall_time, int64_t step) {
  return '\x09' + raw(wall_time) + '\x10' + varint(static_cast<uint64_t>(step)) +
         field('\x3a', "\x08\x01");
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  const std::string point = field('\x0a', tag) + '\x15' + raw(value);
  return '\x09' + raw(wall_time) + '\x10' + varint(static_cast<uint64_t>(step)) +
         field('\x2a', field('\x0a', point));
}

std::string event_record(std::string_view event) {
  const std::string length = raw(uint64_t{event.size()});
  return length + raw(masked_crc(length)) + std::string(event) + raw(masked_crc(event));
}

}  // namespace detail

EventFile::EventFile(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw StateError(base::str("cannot make ", folder, ": ", error.message(), "."));
  const auto stem = base::str(folder, "/events.out.tfevents.", static_cast<int64_t>(now_seconds()),
                              ".", host_name(), ".", getpid(), ".");
  for (int number = 0; fd_ < 0; ++number) {
    path_ = stem + std::to_string(number);
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) {
      throw StateError(base::str("cannot create ", path_, ": ", std::strerror(errno), "."));
    }
  }
  pending_ = detail::event_record(detail::version_event(now_seconds()));
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const StateError&) {  // a destructor has nobody to tell
  }
  close(fd_);
}

void EventFile::add_restart(int64_t step) {
  pending_ += detail::event_record(detail::restart_event(now_seconds(), step));
}

void EventFile::add_scalar(const std::string& tag, int64_t step, double value) {
  pending_ += detail::event_record(
      detail::scalar_event(now_seconds(), step, tag, static_cast<float>(value)));
  if (pending_.size() >= kPendingBytes) flush();
}

void EventFile::flush() {
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t n = pwrite(fd_, pending_.data() + done, pending_.size() - done,
                             written_ + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      // Half a record would end the file for every reader; the next flush writes it all again.
      [[maybe_unused]] const int cut = ftruncate(fd_, written_);
      throw StateError(base::str("cannot write ", path_, " (after ", base::with_commas(written_),
                                 " bytes): ", std::strerror(reason), "."));
    }
    done += static_cast<size_t>(n);
  }
  written_ += static_cast<int64_t>(done);
  pending_.clear();
}

}  // namespace lockstep::files
