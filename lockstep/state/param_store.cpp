#include "lockstep/state/param_store.h"

#include "lockstep/base/assert.h"
#include "lockstep/base/counter_random.h"
#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/state/heap_tensor.h"

namespace lockstep::state {
namespace {

// Shards are filled and read through a piece of memory of this many elements.
constexpr int64_t kFillElements = int64_t{1} << 16;

/// Start values of elements lo <= i < hi. Padding is zero, and stays so.
void fill(float* values, const plan::Param& param, int64_t lo, int64_t hi, uint64_t seed) {
  const base::RandomKey key = base::RandomKey(seed).with("init").with(plan::logical_name(param));
  const bool by_place = base::planted(base::Fault::wrong_start_values);
  for (const plan::LogicalRun& run : plan::logical_runs(param, lo, hi)) {
    float* const at = values + run.lo - lo;
    if (run.first < 0 || param.init.kind == plan::Init::Kind::zeros) {
      std::fill_n(at, run.size(), 0.0f);
    } else if (param.init.kind == plan::Init::Kind::ones) {
      std::fill_n(at, run.size(), 1.0f);
    } else {
      const int64_t first = by_place ? 0 : run.first;
      for (int64_t i = 0; i < run.size(); ++i) {
        at[i] = static_cast<float>(param.init.std * key.normal(static_cast<uint64_t>(first + i)));
      }
    }
  }
}

void add_logical(plan::Digest& digest, const plan::Param& param, int64_t lo, int64_t hi,
                 const float* values) {
  for (const plan::LogicalRun& run : plan::logical_runs(param, lo, hi)) {
    if (run.first < 0) continue;
    digest.add(plan::logical_name(param), run.first, values + run.lo - lo, run.size());
  }
}

/// The module's parameters by path. A tensor that is registered under two paths would be trained
/// as one and saved as two; only a declared tie may share.
std::map<std::string, at::Tensor> parameters_by_path(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> by_path;
  std::map<const void*, std::string> first_path;
  for (const auto& item : module.named_parameters(/*recurse=*/true)) {
    const auto [seen, is_new] = first_path.emplace(item.value().unsafeGetTensorImpl(), item.key());
    if (!is_new) {
      throw UsageError(base::str("parameters \"", seen->second, "\" and \"", item.key(),
                                 "\" are one tensor without a declared tie.\n  Give each its own "
                                 "tensor and declare plan::Tie{\"",
                                 item.key(), "\", \"", seen->second, "\"}."));
    }
    by_path.emplace(item.key(), item.value());
  }
  return by_path;
}

}  // namespace

ParamStore::ParamStore(torch::nn::Module& module, const std::vector<plan::Tie>& ties,
                       const std::function<plan::Init(const std::string&)>& init_of,
                       const ParamStoreOptions& options)
    : group_(options.group), contexts_(options.contexts) {
  const auto by_path = parameters_by_path(module);
  std::vector<plan::ParamDeclaration> declared;
  for (const auto& item : module.named_parameters(/*recurse=*/true)) {
    if (item.value().scalar_type() != at::kFloat || !item.value().device().is_cpu()) {
      throw UsageError(base::str("parameter \"", item.key(), "\" is ", item.value().toString(),
                                 "; masters are float32 on the CPU. Build the model in float32."));
    }
    if (plan::is_further_grain(contexts_, item.key())) continue;
    declared.push_back(
        {.name = item.key(),
         .shape = item.value().sizes().vec(),
         .trainable = item.value().requires_grad(),
         .init = init_of(item.key()),
         .slice = options.slice_of ? options.slice_of(item.key()) : plan::TensorSlice{},
         .chunk = options.chunk_of ? options.chunk_of(item.key()) : 0});
  }
  LOCKSTEP_ASSERT(options.shard.stage == plan::Shard::none || group_ != nullptr,
                  "who divides parameters has a group");
  table_ = plan::make_param_table(declared, ties, options.is_part);
  buckets_ = options.shard.stage == plan::Shard::zero3
                 ? plan::plan_unit_buckets(table_)
                 : plan::plan_buckets(table_, options.first_bucket_bytes, options.bucket_bytes);
  layout_ = plan::plan_shards(table_, buckets_, options.shard);
  if (layout_.sharded()) rank_ = group_->rank();
  pieces_ = layout_.pieces(rank_);
  uses_.resize(table_.params.size());
  if (!options.offload_folder.empty()) {
    file_ = std::make_unique<ShardFile>(layout_, rank_, options.offload_folder,
                                        options.moment_bytes(layout_.owned_numel(rank_)));
  }
  take_over(by_path, options.seed);
}

void ParamStore::take_over(const std::map<std::string, at::Tensor>& by_path, uint64_t seed) {
  if (layout_.gathers()) {
    units_ = std::make_unique<GatheredUnits>(layout_, *group_, file_.get());
    fill_shards(seed);
  } else {
    // Published shards are read by peers.
    flat_ = layout_.sharded()
                ? heap_tensor(*group_, buckets_.numel, at::kFloat, memory::Kind::parameters).zero_()
                : at::zeros({buckets_.numel}, at::kFloat);
    fixed_offset_.assign(table_.params.size(), -1);
    int64_t fixed_numel = 0;
    for (size_t p = 0; p < table_.params.size(); ++p) {
      if (buckets_.slots[p].bucket >= 0) continue;
      fixed_offset_[p] = fixed_numel;
      fixed_numel += table_.params[p].numel;
    }
    fixed_ = at::zeros({fixed_numel}, at::kFloat);
  }
  for (size_t p = 0; p < table_.params.size(); ++p) {
    const plan::Param& param = table_.params[p];
    const int index = static_cast<int>(p);
    if (!divided()) fill(master(index), param, 0, param.numel, seed);
    for (const std::string& path : paths_of(param)) {
      at::Tensor leaf = by_path.at(path);
      // The leaf keeps its identity (hooks, module registration); only its storage moves here.
      if (divided()) {
        leaf.set_data(units_->parameter(index, param.shape));
      } else {
        const bool trained = fixed_offset_[p] < 0;
        const int64_t offset = trained ? buckets_.slots[p].offset : fixed_offset_[p];
        leaf.set_data((trained ? flat_ : fixed_).narrow(0, offset, param.numel).view(param.shape));
      }
      uses_[p].push_back(leaf);
    }
  }
}

/// Of all uses, of each the context grains.
std::vector<std::string> ParamStore::paths_of(const plan::Param& param) const {
  std::vector<std::string> paths;
  for (const std::string& path : param.uses) {
    paths.push_back(path);
    for (int grain = contexts_.lo + 1; grain < contexts_.hi; ++grain) {
      paths.push_back(plan::context_path(grain, path));
    }
  }
  return paths;
}

/// Where a piece begins in this rank's shard of its unit: trained part first, then the rest.
int64_t ParamStore::in_shard(const plan::Piece& piece) const {
  const bool trained = piece.in_unit < layout_.units[static_cast<size_t>(piece.unit)].trained;
  const int64_t before = trained ? 0 : layout_.owned(piece.unit, rank_).size();
  return before + piece.in_unit - layout_.owned(piece.unit, rank_, trained).lo;
}

void ParamStore::fill_shards(uint64_t seed) {
  std::vector<float> values;
  for (const bool trained : {true, false}) {
    for (const plan::Piece& piece : layout_.pieces(rank_, trained)) {
      values.resize(static_cast<size_t>(std::min(piece.size(), kFillElements)));
      for (int64_t lo = piece.lo; lo < piece.hi; lo += kFillElements) {
        const int64_t hi = std::min(piece.hi, lo + kFillElements);
        fill(values.data(), table_.params[static_cast<size_t>(piece.param)], lo, hi, seed);
        const int64_t at = in_shard(piece) + lo - piece.lo;
        units_->write_shard(piece.unit, at, at + hi - lo, values.data());
      }
    }
  }
}

void ParamStore::for_each_piece(
    const std::vector<plan::Piece>& pieces,
    const std::function<void(const plan::Piece&, const float*)>& see) const {
  std::vector<float> values;
  for (const plan::Piece& whole : pieces) {
    if (!divided()) {
      see(whole, master(whole.param) + whole.lo);
      continue;
    }
    for (plan::Piece part = whole; part.lo < whole.hi; part.lo = part.hi) {
      part.hi = std::min(whole.hi, part.lo + kFillElements);
      part.in_unit = whole.in_unit + part.lo - whole.lo;
      values.resize(static_cast<size_t>(part.size()));
      const int64_t at = in_shard(part);
      units_->read_shard(part.unit, at, at + part.size(), values.data());
      see(part, values.data());
    }
  }
}

void ParamStore::read_piece(const plan::Piece& piece, float* into) {
  if (!divided()) {
    std::copy_n(master(piece.param) + piece.lo, piece.size(), into);
    return;
  }
  const int64_t at = in_shard(piece);
  units_->read_shard(piece.unit, at, at + piece.size(), into);
}

void ParamStore::write_piece(const plan::Piece& piece, const float* from) {
  if (!divided()) {
    std::copy_n(from, piece.size(), master(piece.param) + piece.lo);
    return;
  }
  const int64_t at = in_shard(piece);
  units_->write_shard(piece.unit, at, at + piece.size(), from);
}

std::vector<plan::Piece> ParamStore::fixed_pieces() const {
  if (divided()) return layout_.pieces(rank_, /*trained=*/false);
  std::vector<plan::Piece> pieces;
  for (size_t p = 0; p < table_.params.size(); ++p) {
    if (fixed_offset_[p] < 0) continue;
    pieces.push_back({.param = static_cast<int>(p), .lo = 0, .hi = table_.params[p].numel});
  }
  return pieces;
}

int64_t ParamStore::master_at(const plan::Piece& piece) const {
  return file_->shard_at(piece.unit) + in_shard(piece) * 4;
}

float* ParamStore::master(int param) {
  return const_cast<float*>(static_cast<const ParamStore*>(this)->master(param));
}

const float* ParamStore::master(int param) const {
  LOCKSTEP_ASSERT(!divided(), "a divided parameter is whole on no rank");
  const auto p = static_cast<size_t>(param);
  return fixed_offset_[p] < 0 ? flat_.data_ptr<float>() + buckets_.slots[p].offset
                              : fixed_.data_ptr<float>() + fixed_offset_[p];
}

float* ParamStore::master(const plan::Piece& piece) {
  if (!divided()) return master(piece.param) + piece.lo;
  return units_->shard(piece.unit, true) + piece.in_unit - layout_.owned(piece.unit, rank_).lo;
}

const float* ParamStore::whole(int param) {
  if (!divided()) return master(param);
  const int unit = layout_.slots[static_cast<size_t>(param)].unit;
  if (unit != whole_unit_) {
    release_whole();
    units_->gather(unit);
    units_->await(unit);
    whole_unit_ = unit;
  }
  return units_->gathered(param);
}

void ParamStore::release_whole() {
  if (whole_unit_ >= 0) units_->release(whole_unit_);
  whole_unit_ = -1;
}

Work ParamStore::publish(int bucket) {
  const plan::Bucket& range = buckets_.buckets[static_cast<size_t>(bucket)];
  const at::Tensor all = flat_.narrow(0, range.offset, range.numel);
  plan::ElementRange own = layout_.owned(bucket, rank_);
  if (base::planted(base::Fault::unpublished_shard) && bucket == 0) {
    const at::Tensor nothing = at::zeros({group_->size()}, at::kFloat);
    return group_->all_gather(nothing.narrow(0, group_->rank(), 1), nothing);
  }
  if (base::planted(base::Fault::swapped_shards)) {
    const int64_t beside = own.lo >= own.size() ? own.lo - own.size() : 0;
    own = {beside, beside + own.size()};
    return group_->all_gather_uneven(all.narrow(0, own.lo, own.size()).clone(), all,
                                     layout_.counts(bucket));
  }
  return group_->all_gather_uneven(all.narrow(0, own.lo, own.size()), all, layout_.counts(bucket));
}

plan::Digest ParamStore::digest(const std::function<bool(int param)>& counts) const {
  plan::Digest digest;
  const auto counted = [&](int param) { return !counts || counts(param); };
  for (size_t p = 0; p < table_.params.size() && !divided(); ++p) {
    const plan::Param& param = table_.params[p];
    const int index = static_cast<int>(p);
    if (counted(index)) add_logical(digest, param, 0, param.numel, master(index));
  }
  for (const bool trained : {true, false}) {
    if (!divided()) break;
    for_each_piece(layout_.pieces(rank_, trained),
                   [&](const plan::Piece& piece, const float* values) {
                     if (!counted(piece.param)) return;
                     add_logical(digest, table_.params[static_cast<size_t>(piece.param)], piece.lo,
                                 piece.hi, values);
                   });
  }
  return digest;
}

int64_t ParamStore::bytes() const {
  if (!divided()) return flat_.numel() * 4 + fixed_.numel() * 4;
  if (file_) return 0;
  return (layout_.owned_numel(rank_) + layout_.owned_numel(rank_, false)) * 4;
}

}  // namespace lockstep::state
