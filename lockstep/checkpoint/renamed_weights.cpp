#include "lockstep/checkpoint/renamed_weights.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoints {
namespace {

constexpr int64_t kBlock = int64_t{1} << 18;  // elements read at once

/// "a, b and 7 more".
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  if (names.size() <= kShown) return base::joined(names);
  return base::str(base::joined({names.begin(), names.begin() + kShown}, ", "), " and ",
                   names.size() - kShown, " more");
}

class RenamedWeights final : public Weights {
 public:
  RenamedWeights(WeightOrigin origin, std::unique_ptr<TensorSource> source, TensorTable table)
      : origin_(std::move(origin)),
        source_(std::move(source)),
        table_(std::move(table)),
        list_(logical_tensors(table_)) {
    for (const TensorRow& row : table_) rows_[row.logical].push_back(&row);
    for (auto& [name, rows] : rows_) {
      std::sort(rows.begin(), rows.end(),
                [](const TensorRow* a, const TensorRow* b) { return a->first_row < b->first_row; });
    }
  }

  const WeightOrigin& origin() const override { return origin_; }
  const std::vector<WeightInfo>& list() const override { return list_; }

  void read(const std::string& name, int64_t first, int64_t count, float* out) const override {
    const WeightInfo& tensor = info(name);
    if (first < 0 || count < 0 || first > tensor.numel || count > tensor.numel - first) {
      throw StateError(base::str(origin_.path, ": \"", name, "\" has ", tensor.numel,
                                 " elements, but ", count, " from ", first, " on were asked for."));
    }
    int64_t begin = 0;  // of the row's elements in our tensor
    for (const TensorRow* row : rows_.at(name)) {
      const int64_t end = begin + row->numel();
      const int64_t from = std::max(first, begin), to = std::min(first + count, end);
      if (from < to) read_row(*row, from - begin, to - from, out + (from - first));
      begin = end;
    }
  }

 private:
  void read_row(const TensorRow& row, int64_t first, int64_t count, float* out) const {
    if (!row.transposed) {
      source_->read(row.name, first, count, out);
      return;
    }
    const std::scoped_lock lock(mutex_);
    if (turned_name_ != row.name) {
      turned_name_.clear();
      turned_.resize(static_cast<size_t>(row.numel()));
      const int64_t rows = row.rows(), columns = row.shape[0];
      const int64_t at_once = std::max<int64_t>(1, kBlock / rows);
      std::vector<float> lines(static_cast<size_t>(rows * std::min(at_once, columns)));
      for (int64_t lo = 0; lo < columns; lo += at_once) {
        const int64_t hi = std::min(columns, lo + at_once);
        source_->read(row.name, lo * rows, (hi - lo) * rows, lines.data());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = lo; c < hi; ++c) {
            turned_[static_cast<size_t>(r * columns + c)] =
                lines[static_cast<size_t>((c - lo) * rows + r)];
          }
        }
      }
      turned_name_ = row.name;
    }
    std::copy_n(turned_.data() + first, count, out);
  }

  WeightOrigin origin_;
  std::unique_ptr<TensorSource> source_;
  TensorTable table_;
  std::vector<WeightInfo> list_;
  std::map<std::string, std::vector<const TensorRow*>> rows_;  // by our name
  mutable std::mutex mutex_;                                   // guards the two below
  mutable std::string turned_name_;  // the tensor that was transposed last
  mutable std::vector<float> turned_;
};

void check_tensors(const TensorSource& source, const TensorTable& table,
                   const std::function<bool(const std::string&)>& is_no_weight) {
  std::set<std::string> known;
  std::vector<std::string> missing;
  for (const TensorRow& row : table) {
    known.insert(row.name);
    const auto found = source.tensors().find(row.name);
    if (found == source.tensors().end()) {
      missing.push_back(base::str("\"", row.name, "\""));
      continue;
    }
    const TensorSource::Tensor& tensor = found->second;
    if (tensor.shape != row.shape) {
      throw StateError(base::str(source.path(), ": \"", row.name, "\" is ",
                                 shape_text(tensor.shape), "; the model's settings make it ",
                                 shape_text(row.shape), "."));
    }
    if (float_bytes(tensor.dtype) == 0) {
      throw StateError(base::str(source.path(), ": \"", row.name, "\" is ", tensor.dtype,
                                 "; F32, F16 and BF16 are read."));
    }
  }
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : source.tensors()) {
    if (!known.contains(name) && !is_no_weight(name))
      unknown.push_back(base::str("\"", name, "\""));
  }
  if (missing.empty() && unknown.empty()) return;
  std::string message = source.path() + ":";
  if (!missing.empty())
    message += base::str(" of the model's tensors it lacks ", some_of(missing), ".");
  if (!unknown.empty()) {
    message += base::str(" It holds ", some_of(unknown), ", of which the model has no use.");
  }
  throw StateError(message);
}

}  // namespace

std::unique_ptr<Weights> renamed_weights(
    WeightOrigin origin, std::unique_ptr<TensorSource> source, TensorTable table,
    const std::function<bool(const std::string&)>& is_no_weight) {
  check_tensors(*source, table, is_no_weight);
  return std::make_unique<RenamedWeights>(std::move(origin), std::move(source), std::move(table));
}

void require_same_values(const TensorSource& source, const std::string& name,
                         const std::string& other) {
  const auto& tensors = source.tensors();
  bool same = tensors.at(name).shape == tensors.at(other).shape &&
              tensors.at(name).dtype == tensors.at(other).dtype &&
              float_bytes(tensors.at(name).dtype) > 0;
  int64_t numel = 1;
  for (const int64_t size : tensors.at(name).shape) numel *= size;
  std::vector<float> a(kBlock), b(kBlock);
  for (int64_t at = 0; same && at < numel; at += kBlock) {
    const int64_t count = std::min(kBlock, numel - at);
    source.read(name, at, count, a.data());
    source.read(other, at, count, b.data());
    same = std::equal(a.begin(), a.begin() + count, b.begin());
  }
  if (same) return;
  throw StateError(base::str(source.path(), ": \"", name, "\" and \"", other,
                             "\" differ, but the model's settings say that they are tied."));
}

}  // namespace lockstep::checkpoints
