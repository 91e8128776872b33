// A rank of Lockstep, for collectives.py: the engine's calls (net::Group) or the public ones.
#include <sys/mman.h>

#include <cstring>

#include <ATen/ops/from_blob.h>

#include "bench/peers/processes.h"
#include "bench/peers/turns.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/net/world.h"

namespace {

using lockstep::net::DType;
using lockstep::net::ReduceOp;

class Engine : public lockstep::bench::Peer {
 public:
  Engine(std::shared_ptr<lockstep::net::Group> group, bool in_heap)
      : group_(std::move(group)), in_heap_(in_heap) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  float* allocate(int64_t count) override {
    if (!in_heap_) return lockstep::bench::ordinary_memory(count);
    blocks_.push_back(group_->allocate(count * 4));
    return static_cast<float*>(blocks_.back().data());
  }
  void barrier() override { group_->barrier(); }
  void max(std::vector<double>& values) override {
    group_->all_reduce(values.data(), static_cast<int64_t>(values.size()), DType::f64,
                       ReduceOp::max);
  }
  void all_reduce(float* x, int64_t count) override { group_->all_reduce(x, count, DType::f32); }
  void reduce_scatter(const float* in, float* out, int64_t slice) override {
    group_->reduce_scatter(in, out, equal(slice), DType::f32);
  }
  void all_gather(const float* in, float* out, int64_t slice) override {
    group_->all_gather(in, out, equal(slice), DType::f32);
  }
  void all_to_all(const float* in, float* out, int64_t slice) override {
    const auto& counts = equal(slice);
    group_->all_to_all(in, counts, out, counts, DType::f32);
  }
  void broadcast(float* x, int64_t count) override { group_->broadcast(x, count, DType::f32, 0); }

 protected:
  const std::vector<int64_t>& equal(int64_t slice) {
    counts_.assign(static_cast<size_t>(size()), slice);
    return counts_;
  }

  const std::shared_ptr<lockstep::net::Group> group_;

 private:
  const bool in_heap_;
  std::vector<int64_t> counts_;
  std::vector<lockstep::net::HeapBlock> blocks_;
};

/// The same through ProcessGroup, with tensors made before the clock starts: the call is measured,
/// not the making of tensors, which a program does once.
class Public final : public Engine {
 public:
  explicit Public(const std::shared_ptr<lockstep::net::Group>& group)
      : Engine(group, /*in_heap=*/true), tensors_(group) {}
  void all_reduce(float* x, int64_t count) override { tensors_.all_reduce(of(0, x, count)).wait(); }
  void reduce_scatter(const float* in, float* out, int64_t slice) override {
    tensors_.reduce_scatter(of(0, in, slice * size()), of(1, out, slice)).wait();
  }
  void all_gather(const float* in, float* out, int64_t slice) override {
    tensors_.all_gather(of(0, in, slice), of(1, out, slice * size())).wait();
  }
  void all_to_all(const float* in, float* out, int64_t slice) override {
    const auto& counts = equal(slice);
    tensors_.all_to_all(of(0, in, slice * size()), counts, of(1, out, slice * size()), counts)
        .wait();
  }
  void broadcast(float* x, int64_t count) override {
    tensors_.broadcast(of(0, x, count), 0).wait();
  }

 private:
  const at::Tensor& of(int place, const float* data, int64_t count) {
    at::Tensor& tensor = made_[place];
    if (!tensor.defined() || tensor.data_ptr() != data || tensor.numel() != count) {
      tensor = at::from_blob(const_cast<float*>(data), {count}, at::kFloat);
    }
    return tensor;
  }

  lockstep::ProcessGroup tensors_;
  at::Tensor made_[2];
};

}  // namespace

/// Which checks a kind leaves out; check_cost.py puts them beside "heap", which has all.
lockstep::net::CallChecks checks_of(const std::string& kind) {
  lockstep::net::CallChecks checks;
  const bool bare = kind == "bare";
  checks.guard = !bare && kind != "no-guard";
  checks.ledger = !bare && kind != "no-ledger";
  checks.watchdog = !bare && kind != "no-watchdog";
  return checks;
}

// FOLDER MAX_BYTES RANKS heap|ordinary|public|no-guard|no-ledger|no-watchdog|bare
int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int ranks = std::atoi(argv[3]);
  const std::string kind = argv[4];
  const bool crowded = sysconf(_SC_NPROCESSORS_ONLN) < ranks;
  const auto region = lockstep::net::Region::create(ranks);
  return lockstep::bench::run_on_processes(ranks, [&](int rank) {
    const auto endpoint = lockstep::net::Endpoint::join(
        lockstep::net::Region::attach(region->fd()), rank,
        /*direct_memory=*/false, {.oversubscribed = crowded, .checks = checks_of(kind)});
    std::unique_ptr<Engine> peer;
    if (kind == "public") {
      peer = std::make_unique<Public>(endpoint->world());
    } else {
      peer = std::make_unique<Engine>(endpoint->world(), kind != "ordinary");
    }
    lockstep::bench::serve(*peer, argv[1], std::strtoll(argv[2], nullptr, 10));
    endpoint->finish();
  });
}
