/// How ranks of one host that another launcher started come to share a region: local rank 0 makes
/// it, and hands its descriptor to the others over an abstract unix socket.
///
///   local rank 0          listens, gathers the others, then sends the descriptor to all of them
///   any other             connects (again and again until local rank 0 is there), says who it is,
///                         waits
///
/// The socket's name is a hash of the job's key; it lies in no folder, and goes with the process
/// that listens. Both sides ask the kernel who the other is: only processes of the same user are
/// taken. The key travels too, so that no two jobs meet though their names should agree.
///
/// Source  docs/decisions/0005-handing-over-the-region.md, docs/concepts/joining.md;
///         unix(7): abstract names, SCM_RIGHTS, SO_PEERCRED
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/launch/place.h"
#include "lockstep/net/world.h"

namespace lockstep::launch {

/// What tells this job from all others of this host: user, launcher, job id, restart count, meeting
/// place, and the process that launched the ranks (with its start time, so that a later process of
/// the same number is another). Hand-set variables have no launching process: there the meeting
/// place alone decides. Reads /proc.
std::string job_key(const Place& place);

/// What all starts of a job have in common that one launcher starts again (torchrun and `lockstep
/// run` with --max-restarts, a requeued Slurm job), and no other job has. Empty: `place`'s launcher
/// starts nothing again. Reads /proc.
std::string key_of_all_starts(const Place& place);

struct HandoverOptions {
  std::string key;  // of job_key; the same on all ranks of the host
  int rank = 0;     // of the job, for messages
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string started_by;  // for messages: "Open MPI"
  /// How long to wait for the others.
  std::chrono::milliseconds timeout{120'000};
};

/// Throws EnvironmentError for ranks on several hosts, where `engine` needs them to share memory.
void require_one_host(const Place& place, const std::string& engine);

/// Of the ranks of `place`'s host.
HandoverOptions handover_options(const Place& place, std::chrono::milliseconds timeout);

struct Received {
  std::shared_ptr<net::Region> region;
  std::string message;  // what local rank 0 said with it
  /// The ranks of the host are more than the cores that they may use together.
  bool oversubscribed = false;
};

/// For local rank 0: waits for all others of this host, says in the region which ranks those are if
/// they are not all of the job, then hands them `region` and `message` (at
/// most 4000 bytes). All of them get it or none does.
/// Throws CommError: the time is over (who has come, who has not), one came twice or does not agree
/// on the sizes; RankDied: one went away while it waited; EnvironmentError: no socket can be made,
/// or the name is taken by another process.
Received hand_out(const HandoverOptions& options, const std::shared_ptr<net::Region>& region,
                  const std::string& message = {});

/// For local rank 0 that cannot begin: tells all who come within `options.timeout` that it failed.
/// Throws nothing; what cannot be told is not.
void hand_out_failure(const HandoverOptions& options, const std::string& message, int exit_code);

/// For the others. Throws what hand_out throws; CommError with the exit code of local rank 0 when
/// that has failed.
Received take_over(const HandoverOptions& options);

}  // namespace lockstep::launch
