#include "lockstep/train/model_state.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/streamed_adamw.h"

namespace lockstep {
namespace {

optim::StreamOptions stream_for(int64_t elements) {
  const plan::StreamBlocks blocks = plan::stream_blocks(elements);
  return {.block_elements = blocks.elements, .blocks = blocks.blocks};
}

optim::ParamRule rule_of(const ModelStateOptions& options, const plan::ParamTable& table,
                         const plan::Piece& piece) {
  optim::ParamRule rule =
      optim::rule_of(options.groups, table.params[static_cast<size_t>(piece.param)]);
  // Of a shard or a grain, as if it had lost its parameter's shape.
  if (base::planted(base::Fault::no_decay) && piece.param % 2 == 0) rule.decay = false;
  return rule;
}

/// Elements up to the next piece of the rank's shard of the unit: its transfers have no gaps then.
/// What lies between is padding, which nobody reads.
int64_t with_padding(const state::ParamStore& params, size_t index, int rank) {
  const std::vector<plan::Piece>& pieces = params.pieces();
  const plan::Piece& piece = pieces[index];
  const bool last = index + 1 == pieces.size() || pieces[index + 1].unit != piece.unit;
  const int64_t end = last ? params.layout().owned(piece.unit, rank).hi : pieces[index + 1].in_unit;
  return end - piece.in_unit;
}

}  // namespace

ModelState::ModelState(torch::nn::Module& module, const std::vector<plan::Tie>& ties,
                       const std::function<plan::Init(const std::string&)>& init_of,
                       const ModelStateOptions& options, RankContext& context,
                       plan::StepInputs inputs)
    : context_(context),
      running_values_(options.running_values),
      inputs_(std::move(inputs)) {
  {
    const memory::KindScope kind(memory::Kind::parameters);
    params_ = std::make_unique<state::ParamStore>(
        module, ties, init_of,
        state::ParamStoreOptions{
            .seed = context.seed,
            .first_bucket_bytes = options.first_bucket_bytes,
            .bucket_bytes = options.bucket_bytes,
            .shard = options.shard,
            .group = context.gather.get(),
            .offload_folder = options.offload.parameters ? options.offload_folder : std::string(),
            .moment_bytes =
                [](int64_t elements) {
                  return optim::StreamedAdamW::moment_bytes(elements, stream_for(elements));
                },
            .slice_of = options.slice_of,
            .chunk_of = options.chunk_of,
            .is_part = context.tie != nullptr || context.model != nullptr,
            .contexts = context.sequence.local});
  }
  inputs_.table = params_->table();
  inputs_.buckets = params_->buckets();
  inputs_.shards = params_->layout();
  inputs_.optimizer = optim::kind_of(options.optimizer);
  ProcessGroup& reduces = context.shard ? *context.shard : *context.dp;
  grads_ = std::make_unique<state::GradStore>(*params_, reduces, inputs_, context.dp->rank(),
                                              context.replica.get(), context.tie.get());
  if (context.model) {
    parts_ = std::make_unique<ModelParts>(exchange_parts(
        *context.model, params_->table(), params_->layout(), params_->rank(), context.part));
  }
  if (parts_) {
    inputs_.part = {
        .norm = plan::plan_norm(parts_->whole, parts_->owned),
        .ratios = plan::plan_norm(parts_->whole, parts_->owned, plan::NormSums::by_parameter),
        .model_rank = context.model->rank(),
        .has_losses = options.has_losses,
        .message_bytes = options.message_bytes,
        .tensor_bytes = options.tensor_bytes};
  }
  if (inputs_.pipelined()) {
    const plan::PipelineSchedule& shape = inputs_.schedules.front();
    if (shape.splits_weight) context.weight_queue = std::make_shared<WeightQueue>();
    messages_ = options.messages;
    flow_ =
        std::make_unique<detail::StageFlow>(shape, inputs_.stage, *messages_, context.weight_queue);
  }
  has_losses_ = options.has_losses;
  make_runner();
  make_optimizer(options);
}

void ModelState::make_runner() {
  runner_.reset();  // it lets go of the hooks that the next one takes
  runner_ = std::make_unique<StepRunner>(inputs_, *params_, *grads_,
                                         StepGroups{.dp = *context_.dp,
                                                    .shard = context_.shard.get(),
                                                    .model = context_.model.get(),
                                                    .parts = parts_.get(),
                                                    .all = context_.all.get(),
                                                    .has_losses = has_losses_,
                                                    .flow = flow_.get()});
}

void ModelState::set_step(plan::StepInputs inputs) {
  inputs_ = std::move(inputs);
  grads_->set_micro_batches(inputs_.batch.micro_batches_per_grain);
  make_runner();
}

void ModelState::publish() {
  if (!params_->layout().sharded() || params_->units() != nullptr) return;
  std::vector<Work> published;
  for (size_t b = 0; b < params_->buckets().buckets.size(); ++b) {
    published.push_back(params_->publish(static_cast<int>(b)));
  }
  for (Work& work : published) work.wait();
}

void ModelState::make_optimizer(const ModelStateOptions& options) {
  optim::check_groups(options.groups, parts_ ? parts_->whole : inputs_.table);
  if (options.offload.optimizer) {
    make_streamed(options);
  } else {
    std::vector<optim::Span> spans;
    for (const plan::Piece& piece : params_->pieces()) {
      const optim::ParamRule rule = rule_of(options, inputs_.table, piece);
      spans.push_back({.master = params_->master(piece),
                       .gradient = grads_->gradient(piece),
                       .count = piece.size(),
                       .decay = rule.decay,
                       .lr_factor = rule.lr_factor});
    }
    optimizer_ = optim::make_updater(options.optimizer, std::move(spans));
    trust_ = dynamic_cast<optim::TrustUpdater*>(optimizer_.get());
    if (trust_ != nullptr) make_ratios();
  }
  optimizer_bytes_.emplace(memory::current_account(), memory::Kind::optimizer,
                           optimizer_->state_bytes());
}

/// In a file, with its masters where these are in one.
void ModelState::make_streamed(const ModelStateOptions& options) {
  const auto* const adamw = std::get_if<optim::AdamWOptions>(&options.optimizer);
  if (adamw == nullptr) {
    throw UsageError(base::str("the state of an optimizer is offloaded with adamw only, not with ",
                               plan::traits_of(inputs_.optimizer).name,
                               ".\n  Choose adamw, or leave the optimizer's state in memory."));
  }
  const std::vector<plan::Piece>& pieces = params_->pieces();
  state::ShardFile* const shards = params_->file();
  const int rank = params_->layout().sharded() ? params_->rank() : 0;
  std::vector<optim::StreamedSpan> spans;
  int64_t elements = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const plan::Piece& piece = pieces[i];
    const optim::ParamRule rule = rule_of(options, inputs_.table, piece);
    optim::StreamedSpan span{.gradient = grads_->gradient(piece),
                             .count = piece.size(),
                             .decay = rule.decay,
                             .lr_factor = rule.lr_factor};
    if (shards != nullptr) {
      span.master_at = params_->master_at(piece);
      span.count = with_padding(*params_, i, rank);
    } else {
      span.master = params_->master(piece);
    }
    elements += span.count;
    spans.push_back(span);
  }
  const optim::StreamOptions stream =
      stream_for(shards != nullptr ? params_->layout().owned_numel(rank) : elements);
  if (shards == nullptr) {
    moments_ = std::make_unique<files::BlockFile>(
        options.offload_folder, optim::StreamedAdamW::moment_bytes(elements, stream));
  }
  optimizer_ = std::make_unique<optim::StreamedAdamW>(
      shards != nullptr ? shards->file() : *moments_, shards != nullptr ? shards->moments_at() : 0,
      *adamw, std::move(spans), stream);
}

/// Spans are the pieces that this rank owns; those that it counts are in the same order.
void ModelState::make_ratios() {
  constexpr int kKinds = 2;  // weights and updates
  square_sums_ = parts_ ? std::make_unique<detail::SquareSums>(*parts_, *context_.model,
                                                               plan::NormSums::by_parameter, kKinds)
                        : std::make_unique<detail::SquareSums>(
                              inputs_.table, inputs_.shards, context_.shard.get(),
                              plan::NormSums::by_parameter, kKinds);
  size_t counted = 0;
  for (const plan::Piece& piece : params_->pieces()) {
    optim::ChunkSums& sums = chunk_sums_.emplace_back();
    if (parts_ && !parts_->counts[static_cast<size_t>(piece.param)]) continue;
    sums = {.weights = square_sums_->chunks_of(counted, 0),
            .updates = square_sums_->chunks_of(counted, 1)};
    ++counted;
  }
}

void ModelState::measure(double grad_scale) {
  trust_->measure(grad_scale, chunk_sums_);
  const std::vector<std::vector<double>> totals = square_sums_->exchange();
  std::vector<optim::TrustNorms> norms;
  for (const plan::Piece& piece : params_->pieces()) {
    const auto sum = static_cast<size_t>(square_sums_->sum_of(piece.param));
    norms.push_back({.weight = std::sqrt(totals[0][sum]), .update = std::sqrt(totals[1][sum])});
  }
  trust_->set_norms(std::move(norms));
}

void ModelState::update(double lr, double grad_scale) {
  if (params_->units() != nullptr) params_->units()->drop_read_ahead();
  optimizer_->step(lr, grad_scale);
}

bool ModelState::has_saved_replica() const {
  const int shards = params_->units() != nullptr ? context_.gather->size() : 1;
  return context_.dp->rank() < shards && (parts_ != nullptr || shards > 1);
}

std::string ModelState::offload_text() const {
  if (params_->file() != nullptr) return params_->file()->file().description();
  return moments_ ? moments_->description() : std::string();
}

}  // namespace lockstep
