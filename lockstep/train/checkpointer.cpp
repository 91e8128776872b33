#include "lockstep/train/checkpointer.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/folder.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

/// A report that begins with it says what went wrong.
constexpr char kFailed = '!';
/// Elements that are brought from a file at a time.
constexpr int64_t kBlock = int64_t{1} << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

/// A save under way: all that its thread uses.
struct Checkpointer::Job {
  int64_t step = 0;
  int rank = 0;
  std::string target;      // what the folder will be
  std::string unfinished;  // what it is called till then
  checkpoints::Manifest manifest;
  std::vector<checkpoints::SliceToWrite> slices;
  std::shared_ptr<float[]> values;  // theirs, if they were copied
  std::vector<float> block;         // of a slice that is brought from a file
  std::function<void()> before_write;
  std::function<void(const std::string&)> completed;
  std::string report;  // when the part is written
  double write_seconds = 0;
  int64_t bytes = 0;
  checkpoints::Index index;  // rank 0, when all parts are

  void write() {
    if (before_write) before_write();
    const auto start = Clock::now();
    const checkpoints::PartFile part = checkpoints::write_part(unfinished, rank, slices);
    write_seconds = seconds_since(start);
    bytes = part.bytes;
    report = checkpoints::report_text(part, slices);
  }

  void commit() {
    checkpoints::commit_folder(unfinished, target, manifest, index);
    if (completed) completed(target);
  }
};

Checkpointer::Checkpointer(const CheckpointerOptions& options, ModelState& state,
                           ParamAverage* average, const RankContext& context)
    : options_(options), context_(context), runs_(written_runs(state, average, context)) {}

Checkpointer::~Checkpointer() {
  if (!background_.wait_for(std::chrono::duration<double>(options_.timeout_s))) {
    background_.abandon();
    return;
  }
  if (job_ && job_->rank == 0) checkpoints::discard_folder(job_->unfinished);
}

int64_t Checkpointer::copy_bytes() const {
  int64_t elements = 0;
  for (const HeldRun& run : runs_) elements += run.size();
  return elements * 4;
}

void Checkpointer::reserve() {
  if (!options_.async || copy_) return;
  const int64_t bytes = copy_bytes();
  counted_.reset();
  counted_.emplace(memory::current_account(), memory::Kind::other, bytes);
  copy_ = std::shared_ptr<float[]>(new float[static_cast<size_t>(bytes / 4)]);
  // Pages that were never touched are made at the first touch: not in the pause of a save.
  std::memset(copy_.get(), 0, static_cast<size_t>(bytes));
}

std::shared_ptr<Checkpointer::Job> Checkpointer::make_job(const std::string& folder,
                                                          const SavedRun& run) {
  auto job = std::make_shared<Job>();
  job->step = run.step;
  job->rank = context_.world->rank();
  job->target = folder;
  job->manifest.step = run.step;
  job->manifest.saved_at = now_text();
  job->manifest.config = run.config;
  job->manifest.vocab = run.vocab;
  job->manifest.identity = run.identity;
  job->manifest.world = context_.world->size();
  job->manifest.state = run.state;
  job->before_write = options_.before_write;
  job->completed = options_.completed;
  return job;
}

void Checkpointer::save(const std::string& folder, const SavedRun& run) {
  finish();
  const auto start = Clock::now();
  const std::shared_ptr<Job> job = make_job(folder, run);
  std::string begun;
  if (job->rank == 0) {
    try {
      begun = checkpoints::begin_folder(folder);
    } catch (const StateError& error) {
      begun = kFailed + std::string(error.what());
    }
  }
  begun = context_.world->gather_text(begun)[0];
  if (begun.starts_with(kFailed)) {
    throw StateError(
        base::str("the checkpoint of step ", run.step, " was not begun: ", begun.substr(1)));
  }
  job->unfinished = begun;
  job->manifest.rank_states = context_.world->gather_text(run.rank_state);
  const auto has_none = [](const std::string& text) { return text.empty(); };
  if (std::all_of(job->manifest.rank_states.begin(), job->manifest.rank_states.end(), has_none)) {
    job->manifest.rank_states.clear();
  }
  job_ = job;
  phase_ = Phase::writing;
  if (options_.async) {
    std::string failure;
    try {
      reserve();
      copy_values(*job);
    } catch (const Error& error) {
      failure = error.what();
    }
    times_.pause_seconds = seconds_since(start);
    background_.start([job, failure] {
      if (!failure.empty()) throw StateError(failure);
      job->write();
    });
    return;
  }
  list_slices(*job);
  background_.start([job] { job->write(); });
  finish();
  times_.pause_seconds = seconds_since(start);
}

void Checkpointer::copy_values(Job& job) {
  job.values = copy_;
  float* at = copy_.get();
  for (const HeldRun& run : runs_) {
    run.read(run.lo, run.hi, at);
    checkpoints::SliceToWrite& slice = job.slices.emplace_back(slice_of(run));
    slice.values = [at] { return at; };
    at += run.size();
  }
}

/// Values are taken from where they are, as they are written; training waits.
void Checkpointer::list_slices(Job& job) {
  for (const HeldRun& run : runs_) {
    const int64_t step = run.memory != nullptr ? run.size() : kBlock;
    for (int64_t lo = run.lo; lo < run.hi; lo += step) {
      checkpoints::SliceToWrite& slice = job.slices.emplace_back(slice_of(run));
      slice.lo = lo;
      slice.hi = std::min(run.hi, lo + step);
      slice.values = [&run, &job, lo, hi = slice.hi]() -> const float* {
        if (run.memory != nullptr) return run.memory + (lo - run.lo);
        job.block.resize(kBlock);
        run.read(lo, hi, job.block.data());
        return job.block.data();
      };
    }
  }
}

void Checkpointer::advance() {
  if (phase_ == Phase::idle) return;
  const std::string failure = background_.failure();
  const bool is_writing = phase_ == Phase::writing;
  agree(!failure.empty() ? kFailed + failure : is_writing ? job_->report : std::string());
  if (is_writing) {
    times_.write_seconds = job_->write_seconds;
    times_.bytes = job_->bytes;
    phase_ = Phase::committing;
    if (job_->rank == 0) background_.start([job = job_] { job->commit(); });
    return;
  }
  ++times_.saves;
  job_.reset();
  phase_ = Phase::idle;
}

/// All ranks hear what each has to report; rank 0 takes it down. Throws StateError if one failed.
void Checkpointer::agree(const std::string& mine) {
  const std::vector<std::string> reports = context_.world->gather_text(mine);
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (!reports[rank].starts_with(kFailed)) continue;
    const std::string unfinished = job_->unfinished;
    const int64_t step = job_->step;
    job_.reset();
    phase_ = Phase::idle;
    if (context_.world->rank() == 0) checkpoints::discard_folder(unfinished);
    throw StateError(base::str("[rank ", rank, " of ", reports.size(), "] the checkpoint of step ",
                               step, " was not saved: ", reports[rank].substr(1)));
  }
  if (phase_ != Phase::writing || context_.world->rank() != 0) return;
  for (const std::string& report : reports) {
    checkpoints::add_report(report, job_->manifest, job_->index);
  }
  plan::Digest params;
  for (const checkpoints::PartFile& part : job_->manifest.files) params.add(part.params);
  job_->manifest.param_digest = params.text();
}

/// Polls rather than waits: a rank whose disk is slow is not one that is missing.
void Checkpointer::finish() {
  constexpr std::chrono::duration<double> kPoll{0.25};
  const auto start = Clock::now();
  while (pending()) {
    const bool done = background_.wait_for(kPoll);
    at::Tensor state = at::full({2}, done ? 0 : 1, at::kInt);
    state[1] = !done && seconds_since(start) > options_.timeout_s ? 1 : 0;
    context_.world->all_reduce(state, ReduceOp::max).wait();
    const bool all_done = state[0].item<int>() == 0;
    const bool overdue = state[1].item<int>() != 0;
    if (all_done) {
      advance();
    } else if (overdue) {
      give_up(done);
    }
  }
}

void Checkpointer::give_up(bool done) {
  if (!done) {
    background_.abandon();
    copy_.reset();  // the thread has it
  }
  agree(done ? std::string()
             : base::str(kFailed, "its writer did not end within ", options_.timeout_s,
                         " s. Is the disk or network that holds ", job_->target, " stuck?"));
}

}  // namespace lockstep
