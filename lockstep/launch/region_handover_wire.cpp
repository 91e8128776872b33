#include "lockstep/launch/region_handover_wire.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/message_auth.h"

namespace lockstep::launch::handover {
namespace {

constexpr uint64_t kMagic = 0x6c732d6a6f696e00;  // "ls-join"
constexpr uint32_t kVersion = 2;
constexpr int kWaiting = 128;  // connections that have not been accepted yet

struct Head {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t text_bytes = 0;
};

struct NoncePacket {
  Head head;
  std::array<char, kMostText> text;
};

struct HelloPacket {
  Head head;
  std::array<char, kNonceBytes> nonce;
  int32_t rank, world_size, local_rank, local_size;
  cpu_set_t cores;
  std::array<char, kMostText> text;
};

struct ReplyPacket {
  Head head;
  ReplyKind kind;
  int32_t exit_code;
  int32_t oversubscribed;
  std::array<char, kMostText> text;
};

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

/// Abstract: the first byte of the path is zero, and no file is made.
Name name_of(const std::string& key) {
  Name name;
  name.address.sun_family = AF_UNIX;
  char* text = name.address.sun_path + 1;
  const auto hash = static_cast<unsigned long long>(base::mix64(base::fnv1a(key)));
  const int length =
      std::snprintf(text, sizeof name.address.sun_path - 1, "lockstep-join-%016llx", hash);
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return name;
}

Descriptor new_socket() {
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (made.get() < 0) {
    throw EnvironmentError(
        base::str("cannot make a socket to join the other ranks: ", std::strerror(errno)));
  }
  return made;
}

template <class Packet>
void put_text(Packet& packet, const std::string& text) {
  packet.head.text_bytes = static_cast<uint32_t>(std::min(text.size(), kMostText));
  std::memcpy(packet.text.data(), text.data(), packet.head.text_bytes);
}

template <class Packet>
constexpr size_t kFixedBytes = offsetof(Packet, text);

/// A packet's text, once its size and head are found to be right.
template <class Packet>
std::string checked_text(const Packet& packet, ssize_t bytes) {
  const auto fixed = static_cast<ssize_t>(kFixedBytes<Packet>);
  if (bytes < fixed || packet.head.magic != kMagic || packet.head.version != kVersion ||
      packet.head.text_bytes > kMostText ||
      bytes != fixed + static_cast<ssize_t>(packet.head.text_bytes)) {
    throw Closed{};
  }
  return {packet.text.data(), packet.head.text_bytes};
}

struct Message {
  msghdr header{};
  iovec part{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};

  Message(void* data, size_t bytes) : part{data, bytes} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
  }
  Message(const Message&) = delete;
};

template <class Packet>
bool send_packet(const Descriptor& connection, const Packet& packet, int fd) {
  Message message(const_cast<Packet*>(&packet), kFixedBytes<Packet> + packet.head.text_bytes);
  if (fd >= 0) {
    message.header.msg_control = message.control.data();
    message.header.msg_controllen = message.control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(connection.get(), &message.header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

/// Bytes of the packet. `fd`: where the descriptor goes that came with it. Without it the kernel
/// closes all that came, and with it all but one: there is room for one.
template <class Packet>
ssize_t receive_packet(const Descriptor& connection, Packet& packet, Descriptor* fd = nullptr) {
  Message message(&packet, sizeof packet);
  if (fd != nullptr) {
    message.header.msg_control = message.control.data();
    message.header.msg_controllen = CMSG_LEN(sizeof(int));
  }
  ssize_t got = 0;
  do {
    got = ::recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0 && fd == nullptr) throw Closed{};
  const cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  if (got >= 0 && rights != nullptr && rights->cmsg_level == SOL_SOCKET &&
      rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len == CMSG_LEN(sizeof(int))) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(rights), sizeof number);
    fd->reset(number);
  }
  if (got <= 0) throw Closed{};
  return got;
}

}  // namespace

std::optional<Descriptor> listen_as(const std::string& key) {
  Descriptor listener = new_socket();
  const Name name = name_of(key);
  const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
  if (::bind(listener.get(), address, name.bytes) != 0 || ::listen(listener.get(), kWaiting) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    throw EnvironmentError(
        base::str("cannot listen for the other ranks of this host: ", std::strerror(errno)));
  }
  return listener;
}

std::optional<Descriptor> connect_to(const std::string& key) {
  Descriptor connection = new_socket();
  const Name name = name_of(key);
  const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
  // A queue that is full makes connect wait: not longer than this, then the caller looks again.
  const timeval patience{.tv_sec = 0, .tv_usec = 100'000};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(connection.get(), address, name.bytes) == 0) return connection;
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return std::nullopt;
  throw EnvironmentError(base::str("cannot connect to local rank 0: ", std::strerror(errno)));
}

Peer peer_of(const Descriptor& connection) {
  ucred who{};
  socklen_t bytes = sizeof who;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) {
    throw EnvironmentError(
        base::str("cannot tell who is at the end of a socket: ", std::strerror(errno)));
  }
  return {.pid = who.pid, .user = who.uid};
}

bool send_nonce(const Descriptor& connection, const std::string& nonce) {
  NoncePacket packet{};
  put_text(packet, nonce);
  return send_packet(connection, packet, -1);
}

bool send(const Descriptor& connection, const Hello& hello) {
  HelloPacket packet{.head = {},
                     .nonce = {},
                     .rank = hello.rank,
                     .world_size = hello.world_size,
                     .local_rank = hello.local_rank,
                     .local_size = hello.local_size,
                     .cores = hello.cores,
                     .text = {}};
  std::copy_n(hello.nonce.begin(), std::min(hello.nonce.size(), kNonceBytes), packet.nonce.begin());
  put_text(packet, hello.key);
  return send_packet(connection, packet, -1);
}

bool send(const Descriptor& connection, const Reply& reply) {
  ReplyPacket packet{.head = {},
                     .kind = reply.kind,
                     .exit_code = reply.exit_code,
                     .oversubscribed = reply.oversubscribed ? 1 : 0,
                     .text = {}};
  put_text(packet, reply.text);
  return send_packet(connection, packet, reply.fd);
}

std::string receive_nonce(const Descriptor& connection) {
  NoncePacket packet;
  const ssize_t bytes = receive_packet(connection, packet);
  return checked_text(packet, bytes);
}

Hello receive_hello(const Descriptor& connection) {
  HelloPacket packet;
  const ssize_t bytes = receive_packet(connection, packet);
  Hello hello;
  hello.key = checked_text(packet, bytes);
  hello.nonce.assign(packet.nonce.begin(), packet.nonce.end());
  hello.rank = packet.rank;
  hello.world_size = packet.world_size;
  hello.local_rank = packet.local_rank;
  hello.local_size = packet.local_size;
  hello.cores = packet.cores;
  return hello;
}

Reply receive_reply(const Descriptor& connection) {
  ReplyPacket packet;
  Reply reply;
  Descriptor fd;
  const ssize_t bytes = receive_packet(connection, packet, &fd);
  reply.text = checked_text(packet, bytes);
  reply.kind = packet.kind;
  reply.exit_code = packet.exit_code;
  reply.oversubscribed = packet.oversubscribed != 0;
  reply.fd = fd.release();
  return reply;
}

bool wait_readable(const Descriptor& connection, Clock::time_point deadline) {
  for (;;) {
    pollfd entry{.fd = connection.get(), .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, milliseconds_until(deadline)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

}  // namespace lockstep::launch::handover
