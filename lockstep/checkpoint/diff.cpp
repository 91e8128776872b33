#include "lockstep/checkpoint/diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/reader.h"
#include "lockstep/checkpoint/weights.h"

namespace lockstep::checkpoints {
namespace {

constexpr int64_t kBlock = int64_t{1} << 18;

struct Place {
  std::string kind;
  std::string name;
  auto operator<=>(const Place&) const = default;
};

std::string text_of(const Place& place) { return base::str(place.kind, ' ', place.name); }

/// One of the two: a checkpoint with all kinds, or the weights of anything.
class Side {
 public:
  static Side of_checkpoint(const std::string& folder) {
    Side side;
    side.reader_ = std::make_unique<Reader>(folder);
    for (const SavedTensor& tensor : side.reader_->index().tensors) {
      side.tensors[{tensor.kind, tensor.name}] = tensor.shape;
    }
    const Manifest& manifest = side.reader_->manifest();
    side.path = folder;
    side.kind = "checkpoint of Lockstep";
    side.config = manifest.config;
    side.state = manifest.state.flatten();
    side.state["/step"] = manifest.step;
    for (size_t rank = 0; rank < manifest.rank_states.size(); ++rank) {
      side.state[base::str("/rank_states/", rank)] = manifest.rank_states[rank];
    }
    side.is_run = true;
    return side;
  }

  static Side of_weights(const std::string& path) {
    Side side;
    side.weights_ = open_weights(path);
    for (const WeightInfo& tensor : side.weights_->list()) {
      side.tensors[{kParam, tensor.name}] = tensor.shape;
    }
    const WeightOrigin& origin = side.weights_->origin();
    side.path = origin.path;
    side.kind = origin.kind;
    side.config = origin.config;
    side.is_run = !origin.identity.empty();
    side.knows_tokenizer = origin.knows_tokenizer;
    return side;
  }

  void read(const Place& place, int64_t first, int64_t count, float* out) const {
    if (weights_) {
      weights_->read(place.name, first, count, out);
    } else {
      reader_->read_logical(place.kind, place.name, first, count, out);
    }
  }

  std::string path;
  std::string kind;
  std::map<Place, std::vector<int64_t>> tensors;
  plan::TrainConfig config;
  nlohmann::json state = nlohmann::json::object();  // flat; empty of weights
  bool is_run = false;                              // all settings are known
  bool knows_tokenizer = true;

 private:
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Weights> weights_;
};

/// The checkpoint at `path`, if there is one.
std::optional<std::string> checkpoint_in(const std::string& path) {
  if (is_checkpoint(path)) return path;
  const std::vector<Found> found = complete_checkpoints(path);
  return found.empty() ? std::nullopt : std::optional(found.front().folder);
}

void compare_values(const float* a, const float* b, int64_t first, int64_t count,
                    TensorDifference& difference) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    if (difference.elements == 0) {
      difference.first = first + i;
      difference.first_a = a[i];
      difference.first_b = b[i];
    }
    ++difference.elements;
    double absolute = std::abs(double{a[i]} - double{b[i]});
    double relative = absolute / std::max(std::abs(double{a[i]}), std::abs(double{b[i]}));
    if (!std::isfinite(absolute)) {
      absolute = relative = std::numeric_limits<double>::infinity();
    } else if (absolute == 0) {
      relative = 0;  // 0 and -0
    }
    difference.largest_absolute = std::max(difference.largest_absolute, absolute);
    difference.largest_relative = std::max(difference.largest_relative, relative);
  }
}

void compare_tensor(const Side& a, const Side& b, const Place& place, int64_t numel,
                    Difference& found) {
  const auto block = static_cast<size_t>(std::min(kBlock, numel));
  std::vector<float> of_a(block), of_b(block);
  TensorDifference difference{.kind = place.kind, .name = place.name, .numel = numel};
  for (int64_t first = 0; first < numel; first += kBlock) {
    const int64_t count = std::min(kBlock, numel - first);
    a.read(place, first, count, of_a.data());
    b.read(place, first, count, of_b.data());
    compare_values(of_a.data(), of_b.data(), first, count, difference);
  }
  ++found.compared_tensors;
  found.compared_elements += numel;
  if (difference.elements > 0) found.tensors.push_back(std::move(difference));
}

void compare_tensors(const Side& a, const Side& b, Difference& found) {
  for (const auto& [place, shape] : a.tensors) {
    const auto other = b.tensors.find(place);
    if (other == b.tensors.end()) {
      found.shapes.push_back({text_of(place), shape_text(shape), ""});
    } else if (other->second != shape) {
      found.shapes.push_back({text_of(place), shape_text(shape), shape_text(other->second)});
    } else {
      int64_t numel = 1;
      for (const int64_t size : shape) numel *= size;
      compare_tensor(a, b, place, numel, found);
    }
  }
  for (const auto& [place, shape] : b.tensors) {
    if (!a.tensors.contains(place)) found.shapes.push_back({text_of(place), "", shape_text(shape)});
  }
}

void compare_state(const Side& a, const Side& b, Difference& found) {
  std::map<std::string, OtherDifference> all;
  for (const auto& [key, value] : a.state.items()) all[key].a = value.dump();
  for (const auto& [key, value] : b.state.items()) all[key].b = value.dump();
  for (auto& [key, values] : all) {
    if (values.a == values.b) continue;
    values.what = key.empty() ? "state" : key.substr(1);
    found.state.push_back(values);
  }
}

void compare_settings(const Side& a, const Side& b, Difference& found) {
  for (const plan::ConfigKey& key : plan::config_keys()) {
    const bool of_model = key.name.starts_with("model.");
    const bool of_tokenizer =
        key.name == "data.tokenizer" && a.knows_tokenizer && b.knows_tokenizer;
    if (!of_model && !of_tokenizer && !(a.is_run && b.is_run)) continue;
    const std::string in_a = plan::get_key(a.config, key.name);
    const std::string in_b = plan::get_key(b.config, key.name);
    if (in_a != in_b) found.settings.push_back({key.name, in_a, in_b});
  }
}

}  // namespace

Difference compare(const std::string& path_a, const std::string& path_b) {
  const auto saved_a = checkpoint_in(path_a), saved_b = checkpoint_in(path_b);
  const bool everything = saved_a && saved_b;
  const Side a = everything ? Side::of_checkpoint(*saved_a) : Side::of_weights(path_a);
  const Side b = everything ? Side::of_checkpoint(*saved_b) : Side::of_weights(path_b);
  Difference found;
  found.path_a = a.path;
  found.path_b = b.path;
  found.kind_a = a.kind;
  found.kind_b = b.kind;
  compare_tensors(a, b, found);
  compare_state(a, b, found);
  compare_settings(a, b, found);
  return found;
}

}  // namespace lockstep::checkpoints
