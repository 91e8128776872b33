/// Proof that a collective plan does what it promises, for any data and any timing of messages.
///
/// All ranks' rounds are carried out on memory that holds sums by name ("term 0 + term 1") instead
/// of numbers, for whole stretches of elements at a time. Sends are taken to complete only when
/// their receive is posted (rendezvous); a plan that never stops then does not stop with buffered
/// sends either, which wait for less.
#pragma once

#include "lockstep/plan/collective_steps.h"

namespace lockstep::plan {

/// Throws std::logic_error, naming rank and round, unless
///   - all places lie within their buffers, and rounds come in rising order;
///   - in flight: no transfer of a rank's round touches memory that another one of it receives;
///   - sends match receives of as many elements, pair by pair in order, and every rank finishes;
///   - nothing is read that was not given, received or computed before;
///   - only like elements are added, no term twice;
///   - what is promised is there: each term of a sum once, and the same sum on every rank, grouped
///     alike.
void check(const CollectivePlan& plan);

/// Whether every promised sum is grouped as the sum tree over its leaves: additions commute in
/// IEEE arithmetic, so a + b may be b + a. True where no sum is promised. Throws as check() does.
bool is_canonical(const CollectivePlan& plan);

}  // namespace lockstep::plan
