#include "lockstep/files/event_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/files/crc32c.h"
#include "lockstep/files/temp_folder.h"
#include "tests/files/on_disk.h"

namespace lockstep::files {
namespace {

using on_disk::from_hex;
using on_disk::message_of;

/// The events of a file, in the plain way that the format asks for; checks every checksum.
std::vector<std::string> events_of(std::string_view bytes) {
  const auto masked = [](std::string_view of) {
    const uint32_t crc = crc32c(of);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  const auto word = [](std::string_view at) {
    uint32_t value = 0;
    std::memcpy(&value, at.data(), 4);
    return value;
  };
  std::vector<std::string> events;
  while (!bytes.empty()) {
    uint64_t length = 0;
    if (bytes.size() < 16) return {"cut"};
    std::memcpy(&length, bytes.data(), 8);
    if (word(bytes.substr(8)) != masked(bytes.substr(0, 8))) return {"bad length checksum"};
    if (bytes.size() < 16 + length) return {"cut"};
    const auto event = bytes.substr(12, length);
    if (word(bytes.substr(12 + length)) != masked(event)) return {"bad checksum"};
    events.emplace_back(event);
    bytes.remove_prefix(16 + length);
  }
  return events;
}

TEST(EventFile, RecordsOfKnownBytes) {
  EXPECT_EQ(
      detail::event_record(detail::version_event(1.0)),
      from_hex("1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a"));
  EXPECT_EQ(
      detail::event_record(detail::scalar_event(2.0, 7, "loss", 0.5f)),
      from_hex("1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f7373150000003fc3"
               "3fc24a"));
}

TEST(EventFile, LongNumbersAreVarints) {
  const std::string event = detail::scalar_event(0, 300, std::string(200, 't'), 0);
  EXPECT_EQ(event.substr(9, 3), from_hex("10ac02"));
  EXPECT_EQ(event.substr(12, 6), from_hex("2ad3010ad001"));
  EXPECT_EQ(event.substr(18, 3), from_hex("0ac801"));
}

/// Event.session_log = 7 {SessionLog.status = 1: START = 1}, behind wall time and step.
TEST(EventFile, ARestartOfKnownBytes) {
  EXPECT_EQ(detail::restart_event(2.0, 300), from_hex("09000000000000004010ac023a020801"));
  const TempFolder folder("events-test");
  EventFile file(folder.path());
  file.add_restart(21);
  file.flush();
  EXPECT_EQ(events_of(on_disk::get(file.path())).at(1).substr(9),
            detail::restart_event(0, 21).substr(9));
}

TEST(EventFile, HoldsItsPointsInOrder) {
  const TempFolder folder("events-test");
  EventFile file(folder.file("a/tensorboard"));
  EXPECT_NE(file.path().find("/events.out.tfevents."), std::string::npos);
  for (int step = 0; step < 3000; ++step) file.add_scalar("train/loss", step, 1.0 / (1 + step));
  file.flush();
  const auto events = events_of(on_disk::get(file.path()));
  ASSERT_EQ(events.size(), 3001u);
  EXPECT_EQ(events[0].substr(9), detail::version_event(0).substr(9));
  EXPECT_EQ(events[2001].substr(9),
            detail::scalar_event(0, 2000, "train/loss", static_cast<float>(1.0 / 2001)).substr(9));
}

TEST(EventFile, TwoFilesOfOneProcessDiffer) {
  const TempFolder folder("events-test");
  const EventFile first(folder.path());
  const EventFile second(folder.path());
  EXPECT_NE(first.path(), second.path());
}

TEST(EventFile, AFullDiskLosesNothing) {
  const TempFolder folder("events-test");
  EventFile file(folder.path());
  file.flush();
  for (int step = 0; step < 10; ++step) file.add_scalar("loss", step, step);
  {
    const on_disk::FileSizeLimit full(100);
    const std::string message = message_of<StateError>([&] { file.flush(); });
    EXPECT_NE(message.find(file.path()), std::string::npos) << message;
    EXPECT_NE(message.find("after 40 bytes"), std::string::npos) << message;
  }
  EXPECT_EQ(on_disk::get(file.path()).size(), 40u) << "no half record at the end";
  file.flush();
  EXPECT_EQ(events_of(on_disk::get(file.path())).size(), 11u);
}

TEST(EventFile, AFolderThatCannotBeMadeIsNamed) {
  const TempFolder folder("events-test");
  on_disk::put(folder.file("taken"), "");
  const std::string message = message_of<StateError>([&] { EventFile(folder.file("taken")); });
  EXPECT_NE(message.find(folder.file("taken")), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep::files
