#include "lockstep/train/distributed_data_parallel.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/detail/replica_gradients.h"

namespace lockstep {

struct DistributedDataParallel::Impl : detail::ReplicaGradients {
  using ReplicaGradients::ReplicaGradients;
};

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<torch::nn::Module> module,
                                                 std::shared_ptr<ProcessGroup> group,
                                                 const DdpOptions& options) {
  if (!module || !group) {
    throw UsageError("DistributedDataParallel needs a module and a process group, not null.");
  }
  impl_ = std::make_unique<Impl>(std::move(module), std::move(group), options);
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::zero_grad() {
  for (const auto& [name, tensor] : impl_->parameters) tensor.mutable_grad() = at::Tensor();
}

void DistributedDataParallel::backward(const at::Tensor& loss, const at::Tensor& gradient,
                                       bool retain_graph) {
  const auto run = [&] { loss.backward(gradient, retain_graph, /*create_graph=*/false); };
  if (impl_->state == Impl::State::reducing) {
    throw UsageError("DistributedDataParallel::backward was called from within a backward of it.");
  }
  impl_->require_same_trained();
  if (impl_->state == Impl::State::local) return run();

  if (impl_->joining) impl_->exchange_live(true);
  impl_->open(/*last=*/true);
  impl_->state = Impl::State::reducing;
  try {
    run();
    impl_->state = Impl::State::closed;
    impl_->finish();
  } catch (const detail::AgreedRefusal&) {
    throw;
  } catch (const std::exception& error) {
    // Peers wait for buckets that this rank will not bring.
    impl_->state = Impl::State::closed;
    for (const auto& typed : impl_->gradients) typed->store->give_up_backward();
    impl_->group->abort(base::str("backward failed: ", error.what()));
    throw;
  }
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : ddp_(ddp) {
  if (ddp_.impl_->state != Impl::State::closed) {
    throw UsageError("no_sync() inside another no_sync() or inside a backward.");
  }
  ddp_.impl_->open(/*last=*/false);
  ddp_.impl_->state = Impl::State::local;
}

DistributedDataParallel::NoSync::~NoSync() {
  for (const auto& typed : ddp_.impl_->gradients) typed->store->end_backward();
  ddp_.impl_->state = Impl::State::closed;
}

void DistributedDataParallel::join(const std::function<void()>& loop, JoinDivisor divisor) {
  if (impl_->joining) throw UsageError("join() inside join().");
  impl_->joining = divisor;
  try {
    loop();
    if (!impl_->fresh) {
      throw UsageError(base::str(
          "[rank ", impl_->group->rank(), " of ", impl_->group->size(),
          "] the loop in join() ended inside an accumulation: gradients of no_sync() were never "
          "reduced.\n  End each loop with a synchronized backward."));
    }
    while (impl_->exchange_live(false)) impl_->take_part();
  } catch (const std::exception& error) {
    impl_->group->abort(base::str("join failed: ", error.what()));
    throw;
  }
  impl_->joining.reset();
  impl_->divisor = impl_->group->size();
  // `root` is the lowest rank that was in the last step.
  take_from(*impl_->group, impl_->root, impl_->parameters);
  take_from(*impl_->group, impl_->root, impl_->buffers);
  impl_->root = 0;
}

void DistributedDataParallel::verify_replicas() {
  std::vector<NamedTensor> all = impl_->parameters;
  if (impl_->options.buffers == BufferSync::every_step) {
    all.insert(all.end(), impl_->buffers.begin(), impl_->buffers.end());
  }
  require_equal_bits(*impl_->group, all);
}

int64_t DistributedDataParallel::bucket_bytes() const {
  int64_t bytes = 0;
  for (const auto& typed : impl_->gradients) bytes += typed->store->heap_bytes();
  return bytes;
}

int64_t DistributedDataParallel::reductions() const { return impl_->reductions; }
torch::nn::Module& DistributedDataParallel::module() const { return *impl_->module; }
ProcessGroup& DistributedDataParallel::group() const { return *impl_->group; }

}  // namespace lockstep
