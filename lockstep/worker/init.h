/// How a program of one's own becomes a rank.
///
///   int main(int argc, char** argv) {
///     auto world = lockstep::init(argc, argv);
///     ...
///   }
///
/// Started by `lockstep run -n 4 -- program`, torchrun, srun or mpirun it is one of their ranks;
/// started by hand it is a world of one.
#pragma once

#include <memory>

#include "lockstep/comm/process_group.h"
#include "lockstep/net/world.h"

namespace lockstep {

/// All ranks of the job. Copies share it; when the last one goes, the rank leaves in good order.
class World {
 public:
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  operator const std::shared_ptr<ProcessGroup>&() const { return group_; }
  ProcessGroup& operator*() const { return *group_; }
  ProcessGroup* operator->() const { return group_.get(); }
  /// This rank as launcher and peers see it; for its status and its failure.
  net::Endpoint& endpoint() const;

 private:
  friend World init(int argc, char** argv);
  struct Membership;
  explicit World(std::shared_ptr<Membership> membership);
  std::shared_ptr<Membership> membership_;
  std::shared_ptr<ProcessGroup> group_;
};

/// Joins the job that the environment tells of (launch/place.h), once a process. Launched ranks
/// compute with one thread.
///
/// An exception that leaves main ends the job: peers and launcher get its message, and the process
/// exits with the code of its kind (base/error.h), instead of an abort that explains nothing.
///
/// throws  UsageError: called twice. EnvironmentError: variables that cannot be read.
///         CommError: the others did not come in time
World init(int argc, char** argv);

}  // namespace lockstep
