#include "lockstep/launch/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/launch/descriptor.h"

namespace lockstep::launch {

int free_port() {
  // The port is not held until a rank listens on it: a program that binds without SO_REUSEADDR
  // could not have it then.
  const Descriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  if (bind(probe.get(), at, length) != 0 || getsockname(probe.get(), at, &length) != 0) return 0;
  return ntohs(address.sin_port);
}

}  // namespace lockstep::launch
