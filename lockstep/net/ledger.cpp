#include "lockstep/net/ledger.h"

namespace lockstep::net {

LedgerEntry Ledger::total() const {
  LedgerEntry sum;
  for (const LedgerEntry& entry : entries) {
    sum.calls += entry.calls;
    sum.bytes += entry.bytes;
    sum.across += entry.across;
    sum.seconds += entry.seconds;
  }
  return sum;
}

}  // namespace lockstep::net
