#include "lockstep/parallel/pipeline/stage_messages.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr int64_t kMostDirections = 7;
static_assert(plan::kMessageHeaderBytes == (2 + kMostDirections) * 8);

at::Tensor header_of(const at::Tensor& tensor) {
  if (tensor.dim() > kMostDirections) {
    throw UsageError(base::str("a stage hands on a tensor of ", tensor.dim(),
                               " directions; at most ", kMostDirections, " can travel."));
  }
  at::Tensor header = at::zeros({2 + kMostDirections}, at::kLong);
  int64_t* const words = header.data_ptr<int64_t>();
  words[0] = static_cast<int64_t>(tensor.scalar_type());
  words[1] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), words + 2);
  return header;
}

}  // namespace

StageMessages::StageMessages(ProcessGroup& world, const std::vector<int>& stages,
                             const plan::PipelineSchedule& shape) {
  std::set<Edge> edges;
  for (int k = 0; k + 1 < shape.virtual_stages(); ++k) {
    const int from = shape.stage_of(k);
    const int to = shape.stage_of(k + 1);
    if (from == to) continue;
    edges.insert({Kind::activation, from, to});
    edges.insert({Kind::gradient, to, from});
  }
  for (const Edge& edge : edges) {
    const auto [kind, from, to] = edge;
    // In the order of stages, so that a message names ranks as their numbers in the job lie.
    const std::vector<int> ranks = {stages[static_cast<size_t>(std::min(from, to))],
                                    stages[static_cast<size_t>(std::max(from, to))]};
    const char* const name = kind == Kind::activation ? "pp" : "pp-back";
    if (auto group = world.subgroup(ranks, name)) edges_.emplace(edge, std::move(group));
  }
}

ProcessGroup& StageMessages::group_of(Kind kind, int from, int to) const {
  const auto found = edges_.find({kind, from, to});
  LOCKSTEP_ASSERT(found != edges_.end(), "stages that follow each other have an edge");
  return *found->second;
}

void StageMessages::send(Kind kind, int from, int to, const at::Tensor& tensor) {
  ProcessGroup& group = group_of(kind, from, to);
  std::erase_if(sent_, [](const Work& work) { return work.done(); });
  const int peer = 1 - group.rank();
  sent_.push_back(group.send(header_of(tensor), peer));
  sent_.push_back(group.send(tensor.detach().contiguous(), peer));
}

at::Tensor StageMessages::recv(Kind kind, int from, int to) {
  ProcessGroup& group = group_of(kind, from, to);
  at::Tensor header = at::zeros({2 + kMostDirections}, at::kLong);
  const int peer = 1 - group.rank();
  group.recv(header, peer).wait();
  const int64_t* const words = header.data_ptr<int64_t>();
  at::Tensor tensor =
      at::empty({words + 2, static_cast<size_t>(words[1])}, static_cast<at::ScalarType>(words[0]));
  group.recv(tensor, peer).wait();
  return tensor;
}

void StageMessages::flush() {
  for (Work& work : sent_) work.wait();
  sent_.clear();
}

GroupTotals StageMessages::totals() const {
  GroupTotals sum;
  for (const auto& [edge, group] : edges_) {
    const GroupTotals of = group->totals();
    sum.bytes += of.bytes;
    sum.seconds += of.seconds;
    sum.exposed_seconds += of.exposed_seconds;
  }
  return sum;
}

void StageMessages::reset_totals() {
  for (const auto& [edge, group] : edges_) group->reset_totals();
}

}  // namespace lockstep
