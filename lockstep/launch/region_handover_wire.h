/// The packets of a handover, and the socket that carries them:
///
///   nonce   magic, version, 16 random bytes                to a rank that comes
///   hello   magic, version, nonce, place, allowed cores, key     from it: a hello that was
///   recorded
///                                                          earlier has another nonce
///   reply   magic, version, kind, exit code, text           to it, with the region's descriptor
///                                                          if it is one
///
/// Source  unix(7), cmsg(3)
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/launch/descriptor.h"

namespace lockstep::launch::handover {

using Clock = std::chrono::steady_clock;

struct Peer {
  pid_t pid = 0;
  uid_t user = 0;
};

struct Hello {
  std::string nonce;  // that was sent to it
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t local_rank = 0;
  int32_t local_size = 0;
  cpu_set_t cores{};  // that the rank may use
  std::string key;
};

enum class ReplyKind : int32_t { region, refused, failed };

struct Reply {
  ReplyKind kind = ReplyKind::refused;
  int32_t exit_code = 0;
  bool oversubscribed = false;
  std::string text;
  int fd = -1;  // of the region; the receiver owns it
};

inline constexpr size_t kMostText = 4000;

/// The end of a connection: the other process has closed it, or is gone.
struct Closed {};

/// A socket that listens under the name of `key`; nothing if another process does. Throws
/// EnvironmentError.
std::optional<Descriptor> listen_as(const std::string& key);

/// A connection to who listens under that name; nothing if nobody does. Throws EnvironmentError.
std::optional<Descriptor> connect_to(const std::string& key);

/// Who is at the other end.
Peer peer_of(const Descriptor& connection);

/// False: the other end is gone.
bool send_nonce(const Descriptor& connection, const std::string& nonce);
bool send(const Descriptor& connection, const Hello& hello);
bool send(const Descriptor& connection, const Reply& reply);

/// The packet that has come; descriptors that came with it and are not asked for are closed. Throws
/// Closed at the end of the connection, and for bytes that are no
/// packet of this version.
std::string receive_nonce(const Descriptor& connection);
Hello receive_hello(const Descriptor& connection);
Reply receive_reply(const Descriptor& connection);

/// Waits until there is something to read. False: the time is over.
bool wait_readable(const Descriptor& connection, Clock::time_point deadline);

/// Milliseconds until then, for poll: never negative.
int milliseconds_until(Clock::time_point deadline);

}  // namespace lockstep::launch::handover
