#include "lockstep/launch/rendezvous_door.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using rendezvous::Channel;
using rendezvous::Clock;
using rendezvous::Lost;
using rendezvous::Side;

constexpr size_t kMostStrangers = 64;
constexpr std::chrono::milliseconds kPatience = 5s;  // with one of them

bool no_descriptor_is_left(int reason) {
  return reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM;
}

}  // namespace

RendezvousDoor::RendezvousDoor(const std::string& host, int port, std::string token)
    : token_(std::move(token)), listener_(rendezvous::listen_on(host, port)) {}

std::optional<RendezvousDoor::Guest> RendezvousDoor::next(Clock::time_point deadline) {
  do {
    for (auto at = strangers_.begin(); at != strangers_.end();) {
      try {
        if (auto hello = at->channel.receive()) {
          Guest guest{std::move(at->channel), std::move(*hello)};
          strangers_.erase(at);
          return guest;
        }
        ++at;
      } catch (const Lost& lost) {
        put_out_ = "somebody who connected: " + lost.why;
        at = strangers_.erase(at);
      }
    }
    put_out_the_late();
    wait(deadline);
    accept_those_who_wait();
  } while (Clock::now() < deadline);
  return std::nullopt;
}

/// Until somebody comes or says something, or somebody's time is over.
void RendezvousDoor::wait(Clock::time_point deadline) {
  std::vector<pollfd> entries = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  for (const Stranger& stranger : strangers_) {
    entries.push_back({.fd = stranger.channel.fd(), .events = POLLIN, .revents = 0});
  }
  if (!strangers_.empty()) deadline = std::min(deadline, strangers_.front().deadline);
  ::poll(entries.data(), entries.size(), rendezvous::milliseconds_until(deadline));
}

void RendezvousDoor::accept_those_who_wait() {
  for (size_t i = 0; i < kMostStrangers / 4; ++i) {
    auto connection = rendezvous::accept_from(listener_);
    if (!connection) {
      if (!no_descriptor_is_left(errno)) return;
      // The queue stays as it is, and asking again at once would spin.
      if (strangers_.empty()) return std::this_thread::sleep_for(10ms);
      strangers_.pop_front();
      continue;
    }
    if (strangers_.size() == kMostStrangers) strangers_.pop_front();
    strangers_.push_back(
        {Channel(std::move(*connection), Side::listens, token_), Clock::now() + kPatience});
  }
}

void RendezvousDoor::put_out_the_late() {
  while (!strangers_.empty() && strangers_.front().deadline <= Clock::now()) {
    put_out_ = "somebody who connected: it said too little for too long";
    strangers_.pop_front();
  }
}

}  // namespace lockstep::launch
