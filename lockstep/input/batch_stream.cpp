#include "lockstep/input/batch_stream.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::input {

struct BatchStream::Impl {
  std::shared_ptr<const TrainingData> data;
  plan::BatchPlan batch;
  std::vector<plan::Round> rounds;
  int64_t first_step;
  int64_t last_step;
  int64_t first_sample;  // of the first step
  size_t ahead;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::vector<MicroBatch>> ready;  // filled by ls-input, drained by next()
  std::exception_ptr error;                   // what ended ls-input early
  bool stop = false;
  int64_t taken = 0;  // steps that next() has given out
  double waited_seconds = 0;

  std::thread thread;  // ls-input

  bool stopped() {
    std::lock_guard lock(mutex);
    return stop;
  }

  /// Returns early, with a part of the micro-batch, when the stream is being destroyed.
  MicroBatch read(int64_t step, plan::Round round) {
    MicroBatch micro{.round = round, .samples = {}, .context = data->context(), .tokens = {}};
    if (round.phantom()) return micro;
    micro.samples = batch.samples(round.leaf, round.micro);
    const int64_t row = data->context() + 1;
    micro.tokens.resize(static_cast<size_t>(micro.samples.size() * row));
    int64_t* out = micro.tokens.data();
    for (int64_t sample = micro.samples.lo; sample < micro.samples.hi && !stopped(); ++sample) {
      data->read(first_sample + (step - first_step) * batch.global_batch + sample, out);
      out += row;
    }
    return micro;
  }

  void read_ahead() {
    for (int64_t step = first_step; step < last_step; ++step) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stop || ready.size() < ahead; });
        if (stop) return;
      }
      std::vector<MicroBatch> micro_batches;
      for (const auto& round : rounds) micro_batches.push_back(read(step, round));
      {
        std::lock_guard lock(mutex);
        ready.push_back(std::move(micro_batches));
      }
      changed.notify_all();
    }
  }

  void run() {
    pthread_setname_np(pthread_self(), "ls-input");
    try {
      read_ahead();
    } catch (...) {
      {
        std::lock_guard lock(mutex);
        error = std::current_exception();
      }
      changed.notify_all();
    }
  }
};

BatchStream::BatchStream(std::shared_ptr<const TokenSource> tokens, Sampler sampler,
                         plan::BatchPlan batch, std::vector<plan::Round> rounds, int64_t first_step,
                         int64_t last_step, int ahead)
    : BatchStream(std::make_shared<const TrainingData>(std::vector<TrainingData::Source>{
                      {.tokens = std::move(tokens), .sampler = sampler}}),
                  batch, std::move(rounds), first_step, last_step, ahead) {}

BatchStream::BatchStream(std::shared_ptr<const TrainingData> data, plan::BatchPlan batch,
                         std::vector<plan::Round> rounds, int64_t first_step, int64_t last_step,
                         int ahead, int64_t first_sample)
    : impl_(std::make_unique<Impl>()) {
  if (ahead < 1) throw UsageError("a batch stream reads at least 1 step ahead.");
  impl_->data = std::move(data);
  impl_->batch = batch;
  impl_->rounds = std::move(rounds);
  impl_->first_step = first_step;
  impl_->last_step = last_step;
  impl_->first_sample = first_sample < 0 ? first_step * batch.global_batch : first_sample;
  impl_->ahead = static_cast<size_t>(ahead);
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

BatchStream::~BatchStream() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();  // at most one sample's read away
}

std::vector<MicroBatch> BatchStream::next() {
  std::unique_lock lock(impl_->mutex);
  if (impl_->first_step + impl_->taken >= impl_->last_step) {
    throw UsageError(base::str("step ", impl_->first_step + impl_->taken,
                               " asked of a batch stream that ends before step ", impl_->last_step,
                               "."));
  }
  const auto asked = std::chrono::steady_clock::now();
  impl_->changed.wait(lock, [this] { return !impl_->ready.empty() || impl_->error; });
  impl_->waited_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - asked).count();
  if (impl_->ready.empty()) std::rethrow_exception(impl_->error);
  auto micro_batches = std::move(impl_->ready.front());
  impl_->ready.pop_front();
  ++impl_->taken;
  lock.unlock();
  impl_->changed.notify_all();
  return micro_batches;
}

double BatchStream::waited_seconds() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->waited_seconds;
}

}  // namespace lockstep::input
