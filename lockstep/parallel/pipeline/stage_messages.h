/// Activations and their gradients on their way between the stages of a pipeline.
///
/// Each edge (kind, from stage, to stage) is a group of two ranks of its own: a queue that no other
/// edge waits for. A send is queued and its tensor held until it is gone, so its maker may drop
/// its own at once; a receive waits. Shapes travel with the tensors: micro-batches may differ.
///
/// Moves   the tensor's bytes + 72 of its header, counted by the receiver
///                                                    test: StageMessages.BytesAreThoseOfTheCard
/// Source  docs/concepts/pipeline.md
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/step_program.h"

namespace lockstep {

class StageMessages {
 public:
  enum class Kind { activation, gradient };

  /// All ranks of `world` make it alike; `stages` are the ranks of this one's pipeline, by stage.
  /// `shape` says which stages follow each other.
  StageMessages(ProcessGroup& world, const std::vector<int>& stages,
                const plan::PipelineSchedule& shape);

  /// At most 7 directions. The tensor is held, not copied: nobody writes to it before `flush`, but
  /// its storage may be given up at once.
  void send(Kind kind, int from, int to, const at::Tensor& tensor);
  at::Tensor recv(Kind kind, int from, int to);
  /// Waits for what this rank has sent.
  void flush();

  GroupTotals totals() const;
  void reset_totals();

 private:
  using Edge = std::tuple<Kind, int, int>;
  ProcessGroup& group_of(Kind kind, int from, int to) const;

  std::map<Edge, std::shared_ptr<ProcessGroup>> edges_;  // this rank's
  std::vector<Work> sent_;
};

}  // namespace lockstep
