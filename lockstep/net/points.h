/// Named points that a rank passes on its way through a call: where tests plant their faults
/// (EndpointOptions::at_point), so that a rank can be lost at each of them and not just somewhere.
#pragma once

#include <array>
#include <string_view>

namespace lockstep::net {

enum class Point {
  join,           // its peers can see that the rank is there; nothing is connected
  call,           // in a collective, before anybody could know
  announce,       // its descriptor is filled in
  announced,      // and raised; the peers have not been waited for
  met,            // all have come with the same call; no data were used
  round,          // before a round of a plan
  round_started,  // the round's messages are under way
  taken,          // a parcel of a plan has been taken; its sender may know
  staging,        // a chunk has gone through the staging ring; the others are not told
  step,           // through with the peers' memory; the others are not told
  stepped,        // so is everybody
  send,           // there is room for a parcel
  recv,           // a parcel has come
  subgroup,       // a group is agreed on, and not made
  gather_text,    // the texts have come, and are not read
  finish,         // the last call is over
};

/// By Point.
inline constexpr std::array<std::string_view, 16> kPointNames = {
    "join",    "call", "announce", "announced", "met",  "round",    "round_started", "taken",
    "staging", "step", "stepped",  "send",      "recv", "subgroup", "gather_text",   "finish"};
static_assert(kPointNames.size() == static_cast<size_t>(Point::finish) + 1);

}  // namespace lockstep::net
