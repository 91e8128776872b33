#include "lockstep/train/image_task.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/detail/augment.h"

namespace lockstep {
namespace {

/// Points as a model takes them, from -1 to 1, and labels.
struct Batch {
  at::Tensor pictures;  // [B, 1, rows, columns]
  at::Tensor labels;    // [B]
};

/// What is done to the picture at a place of the batch.
using Change = std::function<detail::Shift(int64_t place)>;

Batch read(const files::PictureFile& file, const std::vector<int64_t>& indices,
           const Change& change) {
  const files::PictureShape& shape = file.shape();
  Batch batch{.pictures = at::empty({std::ssize(indices), 1, shape.rows, shape.columns}),
              .labels = at::empty({std::ssize(indices)}, at::kLong)};
  std::vector<uint8_t> points(static_cast<size_t>(shape.points()));
  for (int64_t place = 0; place < std::ssize(indices); ++place) {
    const int64_t index = indices[static_cast<size_t>(place)];
    file.read(index, points.data());
    detail::place(points, shape, change ? change(place) : detail::Shift{},
                  batch.pictures.data_ptr<float>() + place * shape.points());
    batch.labels.data_ptr<int64_t>()[place] = file.label(index);
  }
  return batch;
}

at::Tensor losses_of(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::None);
}

}  // namespace

ImageTask::ImageTask(std::shared_ptr<models::ResNet> model,
                     std::shared_ptr<const files::PictureFile> train,
                     std::shared_ptr<const files::PictureFile> valid,
                     const ImageTaskOptions& options)
    : model_(std::move(model)),
      train_(std::move(train)),
      valid_(std::move(valid)),
      options_(options) {
  if (train_ == nullptr) return;
  const files::PictureShape& a = train_->shape();
  const files::PictureShape& b = valid_->shape();
  if (a.rows == b.rows && a.columns == b.columns && a.classes == b.classes) return;
  throw UsageError(base::str(train_->path(), " has pictures of ", a.rows, " by ", a.columns,
                             " points in ", a.classes, " classes, ", valid_->path(), " of ", b.rows,
                             " by ", b.columns, " in ", b.classes,
                             ".\n  Set data.train and data.valid to two parts of one dataset."));
}

std::shared_ptr<ImageTask> ImageTask::open(const plan::TrainConfig& config) {
  auto train = files::PictureFile::open(config.data.train);
  auto valid = files::PictureFile::open(config.data.valid);
  auto model = models::make_resnet(config, train->shape().classes);
  return std::make_shared<ImageTask>(
      std::move(model), std::move(train), std::move(valid),
      ImageTaskOptions{.seed = static_cast<uint64_t>(config.run.seed),
                       .shuffle = config.data.shuffle,
                       .augment = config.data.augment});
}

std::shared_ptr<ImageTask> ImageTask::open_valid(const plan::TrainConfig& config,
                                                 const std::string& valid) {
  auto pictures = files::PictureFile::open(valid);
  auto model = models::make_resnet(config, pictures->shape().classes);
  return std::make_shared<ImageTask>(std::move(model), nullptr, std::move(pictures),
                                     ImageTaskOptions{});
}

/// A group of the norms' own: their sums overtake the buckets of gradients.
void ImageTask::synchronize(const RankContext& context) {
  if (synchronized_ || !model_->wants_group()) return;
  std::vector<int> ranks(static_cast<size_t>(context.peers->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  model_->synchronize_over(context.peers->subgroup(ranks, "norm"));
  synchronized_ = true;
}

at::Tensor ImageTask::losses(const Samples& samples, const RankContext& context) {
  synchronize(context);
  const input::SampleOrder order{
      .size = train_->shape().count, .seed = options_.seed, .shuffle = options_.shuffle};
  const at::Tensor rows = rows_of(order, samples);
  const int64_t* const first = rows.data_ptr<int64_t>();
  Change change;
  if (options_.augment) {
    change = [&](int64_t place) {
      return detail::drawn_shift(context.sample_key("pictures", "augment", place));
    };
  }
  const Batch batch = read(*train_, {first, first + rows.numel()}, change);
  return losses_of(model_->forward(batch.pictures, context), batch.labels);
}

ValidationScores ImageTask::validate(int64_t first, int64_t count, int64_t of,
                                     const RankContext& context) {
  std::vector<int64_t> indices;  // evenly spread
  for (int64_t i = first; i < first + count; ++i) {
    indices.push_back(i * valid_->shape().count / of);
  }
  const Batch batch = read(*valid_, indices, {});
  const at::Tensor logits = model_->forward(batch.pictures, context);
  return {.losses = losses_of(logits, batch.labels), .right = logits.argmax(1).eq(batch.labels)};
}

double ImageTask::flops_per_term() const {
  return model_->flops_per_picture(valid_->shape().rows, valid_->shape().columns);
}

void ImageTask::start(const plan::BatchPlan& batch, const std::vector<plan::Round>&, int64_t,
                      int64_t, int64_t) {
  leaves_ = batch.sum_leaves();
}

void ImageTask::end_step(const RankContext& context) { model_->end_step(*context.peers, leaves_); }

}  // namespace lockstep
