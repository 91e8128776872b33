/// Carries collective plans out over a transport: this rank's rounds, one after the other.
///
/// Plans are made once for a call's shape and kept. Sums of fp16 and bf16 travel as fp32 where
/// partial sums do (all algorithms but direct) and are rounded once; averages are divided at the
/// end.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/net/group_core.h"
#include "lockstep/net/transport.h"

namespace lockstep::net {

class PlanRunner {
 public:
  PlanRunner(Group::Impl& group, std::unique_ptr<Transport> transport);

  /// Drops all plans.
  void forget();
  Transport& transport() { return *transport_; }

  /// `terms`: this rank's; `recipe`: everybody's. Other algorithms than direct are taken only where
  /// every rank brings one term and ranks are added as leaves are.
  void all_reduce(plan::Algorithm algorithm, std::span<const Term> terms, const SumRecipe& recipe,
                  void* result, int64_t count, DType type, ReduceOp op, LedgerEntry& entry);
  void reduce_scatter(plan::Algorithm algorithm, std::span<const Term> terms,
                      const SumRecipe& recipe, void* out, std::span<const int64_t> counts,
                      DType type, ReduceOp op, LedgerEntry& entry);
  void all_gather(plan::Algorithm algorithm, const void* in, void* out,
                  std::span<const int64_t> counts, DType type, LedgerEntry& entry);
  void broadcast(plan::Algorithm algorithm, void* data, int64_t count, DType type, int root,
                 LedgerEntry& entry);
  /// `splits`[r][p]: elements from rank r to rank p. Bruck only where all are equal, else direct.
  void all_to_all(plan::Algorithm algorithm, const void* in, void* out,
                  const std::vector<std::vector<int64_t>>& splits, DType type, LedgerEntry& entry);

 private:
  struct Kept {
    plan::Collective operation;
    plan::Algorithm algorithm;
    std::vector<int64_t> shape;
    plan::RankSteps steps;  // this rank's
  };
  /// The buffers of a run, and the type their elements have on the way.
  struct Memory {
    char* result = nullptr;
    std::span<const Term> terms;  // buffers from plan::kFirstTerm on
    DType type = DType::u8;
    ReduceOp op = ReduceOp::sum;
  };

  template <class Make>
  const plan::RankSteps& steps_for(plan::Collective operation, plan::Algorithm algorithm,
                                   std::vector<int64_t> shape, Make&& make);
  bool ranks_are_leaves(const SumRecipe& recipe) const;
  void run(const plan::RankSteps& steps, const Memory& memory, LedgerEntry& entry);
  void finish_round();
  void reduce_in_place(const plan::RankSteps& steps, plan::Algorithm algorithm, char* data,
                       int64_t count, DType type, ReduceOp op, LedgerEntry& entry);

  Group::Impl& group_;
  std::unique_ptr<Transport> transport_;
  std::vector<Kept> kept_;
  size_t next_kept_ = 0;  // to be replaced next
  Group::Impl::Scratch scratch_;
  Group::Impl::Scratch wide_;  // fp32 of a sum that is rounded at the end
  Group::Impl::Scratch work_;  // what a reduce-scatter uses up
  std::vector<const void*> sources_;
};

}  // namespace lockstep::net
