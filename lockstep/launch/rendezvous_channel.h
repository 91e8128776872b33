/// A connection between two launchers that prove to each other that they know the job's token, and
/// then say JSON objects. Nothing that is read is believed, or larger than its cap, before that.
///
///   node k -> node 0   greeting   "lockstep-nodes" | version, 2 bytes | nonce, 16 bytes
///   node 0 -> node k   greeting   the same, with a nonce of its own
///   then both          frame      length, 4 bytes | JSON | tag, 32 bytes              big-endian
///                      denied     length 0: the tag of what you said is wrong
///
///   key = HMAC(token, "lockstep-nodes" | version | nonce of node 0 | nonce of node k)
///   tag = HMAC(key, side | number of the frame on its side, 8 bytes | length | JSON)
///
/// Each connection has two fresh nonces, so a frame that was overheard is of no use in another
/// one, the other way, or a second time. The token never travels. The JSON is not encrypted.
///
/// Holds   one frame: up to 4 KiB in the first, 1 MiB later; buffers grow with what has come
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lockstep/launch/descriptor.h"

namespace lockstep::launch::rendezvous {

using Message = nlohmann::json;

/// Nothing more can be said on a connection.
struct Lost {
  std::string why;
  /// It ended or broke: coming again may help. Else the other end speaks something else, or has
  /// another token.
  bool ended = false;
};

/// An end of a connection: node 0's, or that of a node which comes to it.
enum class Side : char { listens = '0', comes = 'k' };

class Channel {
 public:
  /// Who comes sends its greeting at once. Throws Lost.
  Channel(Descriptor connection, Side side, std::string token);

  int fd() const { return connection_.get(); }
  /// True: both greetings are through, and frames can be sent. Never waits. Throws Lost.
  bool greet();

  /// `message` is an object with a "type". Waits for the other end's buffer, at most the socket's
  /// time limit. Throws Lost.
  void send(const Message& message);

  /// The next message, if all of it has come; never waits. A wrong tag is answered by "denied".
  /// Throws Lost.
  std::optional<Message> receive();

 private:
  bool read_up_to(size_t bytes);
  void check_name() const;
  void send_bytes(const std::string& bytes);
  std::string tag_of_frame(Side side, uint64_t number, const std::string& frame) const;

  Descriptor connection_;
  Side side_;
  std::string token_;
  std::string nonce_;
  std::string key_;     // of this connection; empty until both greetings are there
  std::string unread_;  // the beginning of the greeting or frame that is coming
  uint64_t sent_ = 0;   // frames
  uint64_t received_ = 0;
};

}  // namespace lockstep::launch::rendezvous
