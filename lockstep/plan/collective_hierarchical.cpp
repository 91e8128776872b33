// Inside hosts, across hosts, inside hosts: the slow links carry each element once each way.
#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/plan/detail/collective_parts.h"

namespace lockstep::plan {
namespace {

using detail::Members;
using detail::Slices;

/// The number of ranks. Throws UsageError unless hosts are of one size and name each rank once.
int check_hosts(const std::vector<Members>& hosts) {
  if (hosts.empty() || hosts[0].empty()) {
    throw UsageError("hierarchical all_reduce: at least one host with at least one rank");
  }
  for (const Members& host : hosts) {
    if (host.size() == hosts[0].size()) continue;
    throw UsageError(base::str("hierarchical all_reduce: a host has ", hosts[0].size(),
                               " ranks and another ", host.size(),
                               ".\n  Every host needs as many; otherwise use direct or halving."));
  }
  const size_t ranks = hosts.size() * hosts[0].size();
  std::vector<bool> named(ranks);
  for (const Members& host : hosts) {
    for (const int rank : host) {
      if (rank < 0 || static_cast<size_t>(rank) >= ranks || named[static_cast<size_t>(rank)]) {
        throw UsageError(
            base::str("hierarchical all_reduce: rank ", rank, " is named twice or is none of the ",
                      ranks, ".\n  The hosts together name ranks 0 to ", ranks - 1, " once each."));
      }
      named[static_cast<size_t>(rank)] = true;
    }
  }
  return static_cast<int>(ranks);
}

void check_part(Algorithm algorithm) {
  if (algorithm == Algorithm::direct || algorithm == Algorithm::halving) return;
  throw UsageError(base::str("hierarchical all_reduce: \"", name_of(algorithm),
                             "\" is no part of it.\n  Its parts can be direct or halving."));
}

/// By piece of a host's range: the place in the host of the rank that sums it. Where halving leaves
/// each rank one piece, it is that piece: nothing has to be moved to an owner.
std::vector<int> owners_inside(Algorithm inside, size_t ranks_per_host) {
  const auto k = static_cast<int>(ranks_per_host);
  const bool stay = inside == Algorithm::halving && std::has_single_bit(ranks_per_host);
  return stay ? detail::halving_holders(k) : detail::all_ranks(k);
}

}  // namespace

bool hosts_are_subtrees(const std::vector<Members>& hosts) {
  if (hosts.size() < 2 || hosts[0].size() < 2 || !std::has_single_bit(hosts[0].size()))
    return false;
  int next = 0;
  for (const Members& host : hosts) {
    if (host.size() != hosts[0].size()) return false;
    for (const int rank : host) {
      if (rank != next++) return false;
    }
  }
  return true;
}

CollectivePlan plan_hierarchical_all_reduce(const std::vector<Members>& hosts, int64_t count,
                                            Algorithm inside, Algorithm across) {
  const int ranks = check_hosts(hosts);
  check_part(inside);
  check_part(across);
  detail::CollectiveBuilder builder =
      detail::sum_in_place(Collective::all_reduce, Algorithm::hierarchical, ranks, count);
  for (int rank = 0; rank < ranks; ++rank) builder.result_promised(rank, {0, count}, kSum);

  const size_t per_host = hosts[0].size();
  const bool direct = inside == Algorithm::direct;
  const Slices pieces = detail::slices_of({0, count}, static_cast<int>(per_host));
  const std::vector<int> owners = owners_inside(inside, per_host);
  int scattered = 0;
  for (const Members& host : hosts) {
    scattered = direct ? detail::direct_reduce_scatter(builder, host, pieces, 0)
                       : detail::halving_reduce_scatter(builder, host, pieces, owners, 0);
  }
  int summed = scattered;
  for (size_t piece = 0; piece < per_host; ++piece) {
    Members peers;
    for (const Members& host : hosts) peers.push_back(host[static_cast<size_t>(owners[piece])]);
    summed = across == Algorithm::direct
                 ? detail::direct_all_reduce(builder, peers, pieces[piece], scattered)
                 : detail::halving_all_reduce(builder, peers, pieces[piece], scattered);
  }
  for (const Members& host : hosts) {
    if (direct) {
      detail::direct_all_gather(builder, host, pieces, summed);
    } else {
      detail::halving_all_gather(builder, host, pieces, owners, summed);
    }
  }
  return builder.take();
}

}  // namespace lockstep::plan
