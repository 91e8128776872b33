/// What moved: calls, bytes and time by operation, counted where the copy happens.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/net/types.h"

namespace lockstep::net {

struct LedgerEntry {
  int64_t calls = 0;
  int64_t bytes = 0;   // of peers' memory read and written by this rank, or of messages received
  int64_t across = 0;  // of them, those that came from other hosts
  double seconds = 0;  // in the call, waiting included
};

/// Of one group on one rank. Written by the thread inside a call; read it when no call is running.
struct Ledger {
  std::array<LedgerEntry, kOperations> entries;
  LedgerEntry& operator[](Operation op) { return entries[static_cast<size_t>(op)]; }
  const LedgerEntry& operator[](Operation op) const { return entries[static_cast<size_t>(op)]; }
  LedgerEntry total() const;
};

}  // namespace lockstep::net
