#include "lockstep/launch/rendezvous_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/str.h"
#include "lockstep/launch/message_auth.h"

namespace lockstep::launch::rendezvous {
namespace {

constexpr std::string_view kName = "lockstep-nodes";
constexpr uint32_t kVersion = 2;
constexpr size_t kNamedBytes = kName.size() + 2;
constexpr size_t kGreetingBytes = kNamedBytes + kNonceBytes;
constexpr size_t kLengthBytes = 4;
constexpr uint32_t kMostFirstBytes = 4 << 10;  // of a node that has proved nothing yet
constexpr uint32_t kMostBytes = 1 << 20;

std::string bytes_of(uint64_t number, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    text += static_cast<char>(number >> shift & 0xff);
  }
  return text;
}

uint32_t number_in(std::string_view text) {
  uint32_t number = 0;
  for (const char byte : text) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

/// Name and version of this protocol.
std::string named() { return std::string(kName) + bytes_of(kVersion, 2); }

}  // namespace

Channel::Channel(Descriptor connection, Side side, std::string token)
    : connection_(std::move(connection)),
      side_(side),
      token_(std::move(token)),
      nonce_(new_nonce()) {
  if (side_ == Side::comes) send_bytes(named() + nonce_);
}

/// True: `unread_` has so many bytes. Never reads more, so that nothing is held for later.
bool Channel::read_up_to(size_t bytes) {
  std::array<char, 4096> piece;
  while (unread_.size() < bytes) {
    const size_t wanted = std::min(piece.size(), bytes - unread_.size());
    const ssize_t got = ::recv(connection_.get(), piece.data(), wanted, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got == 0) throw Lost{"the connection was closed", /*ended=*/true};
    if (got < 0) {
      throw Lost{base::str("the connection broke: ", std::strerror(errno)), /*ended=*/true};
    }
    unread_.append(piece.data(), static_cast<size_t>(got));
  }
  return true;
}

/// Whoever speaks another protocol may send fewer bytes than a greeting has: each is looked at.
void Channel::check_name() const {
  if (!kName.starts_with(std::string_view(unread_).substr(0, kName.size()))) {
    throw Lost{"it does not speak Lockstep's protocol"};
  }
}

bool Channel::greet() {
  if (!key_.empty()) return true;
  const bool has_version = read_up_to(kNamedBytes);
  check_name();
  if (!has_version) return false;
  const uint32_t version = number_in(std::string_view(unread_).substr(kName.size(), 2));
  if (version != kVersion) {
    // It learns the version of this end; one of an earlier version may be gone already.
    if (side_ == Side::listens) send_bytes(named() + nonce_);
    throw Lost{base::str("it speaks version ", version, " of the protocol, this launcher version ",
                         kVersion, "; install one version of Lockstep on all nodes")};
  }
  if (!read_up_to(kGreetingBytes)) return false;
  const std::string other = unread_.substr(kNamedBytes);
  if (side_ == Side::listens) send_bytes(named() + nonce_);
  const bool listens = side_ == Side::listens;
  key_ = tag_of(token_, named() + (listens ? nonce_ + other : other + nonce_));
  unread_.clear();
  return true;
}

std::string Channel::tag_of_frame(Side side, uint64_t number, const std::string& frame) const {
  return tag_of(key_, static_cast<char>(side) + bytes_of(number, 8) + frame);
}

void Channel::send_bytes(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t went =
        ::send(connection_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (went < 0 && errno == EINTR) continue;
    if (went < 0) {
      throw Lost{base::str("the connection broke: ", std::strerror(errno)), /*ended=*/true};
    }
    sent += static_cast<size_t>(went);
  }
}

void Channel::send(const Message& message) {
  const std::string text = message.dump(-1, ' ', false, Message::error_handler_t::replace);
  const std::string frame = bytes_of(text.size(), kLengthBytes) + text;
  send_bytes(frame + tag_of_frame(side_, sent_++, frame));
}

std::optional<Message> Channel::receive() {
  if (!greet() || !read_up_to(kLengthBytes)) return std::nullopt;
  const uint32_t bytes = number_in(std::string_view(unread_).substr(0, kLengthBytes));
  if (bytes == 0) throw Lost{"it says that this launcher has another job token"};
  if (bytes > (received_ == 0 ? kMostFirstBytes : kMostBytes)) {
    throw Lost{base::str("it announces a message of ", bytes, " bytes")};
  }
  const size_t frame_bytes = kLengthBytes + bytes;
  if (!read_up_to(frame_bytes + kTagBytes)) return std::nullopt;
  const std::string tag = unread_.substr(frame_bytes);
  const std::string frame = unread_.substr(0, frame_bytes);
  unread_.clear();
  const Side other = side_ == Side::listens ? Side::comes : Side::listens;
  if (!same_tag(tag, tag_of_frame(other, received_, frame))) {
    send_bytes(bytes_of(0, kLengthBytes));
    throw Lost{"it does not know the job token of this launcher"};
  }
  ++received_;
  Message message = Message::parse(frame.begin() + kLengthBytes, frame.end(), nullptr,
                                   /*allow_exceptions=*/false);
  if (!message.is_object() || !message.contains("type") || !message["type"].is_string()) {
    throw Lost{"what it says is no message"};
  }
  return message;
}

}  // namespace lockstep::launch::rendezvous
