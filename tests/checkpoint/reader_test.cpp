// Written by N in some cuts, read by M in others: the same values, each byte read once and proven.

#include "lockstep/checkpoint/reader.h"

#include <numeric>

#include "lockstep/base/error.h"
#include "tests/checkpoint/saved.h"
#include "tests/files/on_disk.h"
#include "tests/plan/property.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

using checkpoints::testing::deal;
using checkpoints::testing::Dealt;
using checkpoints::testing::in_grains;
using checkpoints::testing::save;
using checkpoints::testing::save_some;
using checkpoints::testing::some_tensors;
using checkpoints::testing::value_of;
using checkpoints::testing::values_of;
using checkpoints::testing::whole;
using on_disk::message_of;

struct ReaderTest : ::testing::Test {
  std::string target() const { return folder.file("step_00000020"); }
  lockstep::testing::TempFolder folder;
};

void add(ReadProof& sum, const ReadProof& one) {
  for (size_t file = 0; file < sum.values.size(); ++file) {
    sum.values[file].add(one.values[file]);
    sum.elements[file] += one.elements[file];
  }
}

int64_t elements_of(const Manifest& manifest) {
  int64_t elements = 0;
  for (const PartFile& part : manifest.files) elements += part.elements;
  return elements;
}

/// Parts sorted as text have 10 before 2.
TEST_F(ReaderTest, TwelveRanksPartsComeInTheOrderOfRanks) {
  const SavedTensor tensor = whole(kParam, "w", {24});
  Manifest manifest{.step = 20,
                    .saved_at = "",
                    .config = {},
                    .identity = "",
                    .param_digest = "",
                    .world = 12,
                    .state = {},
                    .rank_states = {},
                    .index_sha256 = "",
                    .files = {}};
  Index index;
  std::filesystem::create_directories(std::filesystem::path(target()).parent_path());
  const std::string unfinished = begin_folder(target());
  for (int rank = 0; rank < 12; ++rank) {
    const std::vector<float> two = {float(2 * rank), float(2 * rank + 1)};
    const std::vector<SliceToWrite> slices = {
        {.tensor = tensor, .grain = 0, .lo = 2 * rank, .hi = 2 * rank + 2, .values = [&two] {
           return two.data();
         }}};
    add_report(report_text(write_part(unfinished, rank, slices), slices), manifest, index);
  }
  plan::Digest params;
  for (const PartFile& part : manifest.files) params.add(part.params);
  manifest.param_digest = params.text();
  commit_folder(unfinished, target(), manifest, index);

  std::vector<float> read(24), expected(24);
  std::iota(expected.begin(), expected.end(), 0.0F);
  const Reader reader(target());
  reader.read_logical(kParam, "w", 0, 24, read.data());
  EXPECT_EQ(read, expected);
  EXPECT_NO_THROW(reader.verify());
}

TEST_F(ReaderTest, ReadsWhatItIsAskedFor) {
  save_some(target());
  const Reader reader(target());
  std::vector<float> values(5);
  reader.read_logical("exp_avg", "ln_f.bias", 2, 5, values.data());
  EXPECT_EQ(values, values_of(whole("exp_avg", "ln_f.bias", {8}), 0, 2, 7));
  EXPECT_EQ(reader.bytes_read(), 20);
}

TEST_F(ReaderTest, SaysWhatItHasNot) {
  save_some(target());
  const Reader reader(target());
  std::vector<float> values(1000);
  const auto refusal = [&](const std::string& kind, const std::string& name,
                           std::vector<int64_t> shape) {
    const plan::Param param = whole(kind, name, std::move(shape)).grain_param(0);
    return message_of<StateError>([&] { reader.read(kind, param, 0, 1, values.data()); });
  };
  EXPECT_EQ(refusal(kParam, "ln_f.bias", {8}), "");
  EXPECT_NE(refusal("momentum", "ln_f.bias", {8}).find("saved without any momentum"),
            std::string::npos);
  EXPECT_NE(refusal(kParam, "ln_g.bias", {8}).find("nearest is \"ln_f.bias\""), std::string::npos);
  EXPECT_NE(refusal(kParam, "ln_f.bias", {9}).find("shape [8], the model's has [9]"),
            std::string::npos);
  for (const auto& [first, count] : {std::pair{-1, 2}, {7, 2}, {0, 9}}) {
    EXPECT_THROW(reader.read_logical(kParam, "ln_f.bias", first, count, values.data()), StateError);
  }
}

TEST_F(ReaderTest, HalfReadIsNotProven) {
  save_some(target());
  const Reader reader(target());
  ReadProof proof = reader.proof();
  std::vector<float> values(488);
  reader.read_logical(kParam, "wte.weight", 0, 488, values.data(), &proof);
  const std::string message = message_of<StateError>([&] { reader.check(proof); });
  EXPECT_NE(message.find("part_0000.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("belong to the model"), std::string::npos) << message;
}

/// Any tensors: whole, or in grains of blocks whose last one may be padded.
SavedTensor any_tensor(const std::string& kind, const std::string& name) {
  auto shape = *rc::gen::container<std::vector<int64_t>>(*rc::gen::inRange<size_t>(1, 4),
                                                         rc::gen::inRange<int64_t>(1, 8));
  const int grains = *rc::gen::element(0, 1, 2, 3, 4);
  if (grains == 0) return whole(kind, name, shape);
  const int dim = *rc::gen::inRange(0, static_cast<int>(shape.size()));
  std::vector<int64_t> blocks(*rc::gen::inRange<size_t>(0, 3), 0);
  int64_t along = 0;
  for (int64_t& block : blocks) along += block = grains * *rc::gen::inRange<int64_t>(1, 3);
  const int64_t last = shape[static_cast<size_t>(dim)];
  shape[static_cast<size_t>(dim)] = along + last;
  blocks.push_back((last + grains - 1) / grains * grains);
  return in_grains(kind, name, shape, dim, blocks, grains);
}

std::vector<SavedTensor> any_tensors() {
  std::vector<SavedTensor> tensors;
  const int names = *rc::gen::inRange(1, 4);
  for (const char* kind : {"average", "exp_avg", "param"}) {
    for (int i = 0; i < names; ++i) tensors.push_back(any_tensor(kind, "w" + std::to_string(i)));
  }
  return tensors;
}

/// Cuts anywhere, dealt to anyone.
std::vector<Dealt> any_deal(const std::vector<SavedTensor>& tensors, int writers) {
  std::vector<Dealt> dealt;
  for (size_t t = 0; t < tensors.size(); ++t) {
    for (int grain = 0; grain < tensors[t].grains; ++grain) {
      const int64_t numel = tensors[t].grain_param(grain).numel;
      for (int64_t lo = 0; lo < numel;) {
        const int64_t hi = std::min(numel, lo + *rc::gen::inRange<int64_t>(1, 60));
        dealt.push_back({.tensor = t,
                         .grain = grain,
                         .lo = lo,
                         .hi = hi,
                         .writer = *rc::gen::inRange(0, writers)});
        lo = hi;
      }
    }
  }
  return dealt;
}

RC_GTEST_FIXTURE_PROP(ReaderTest, ReadInOtherCutsOfTheSameGrains, ()) {
  const auto tensors = any_tensors();
  const int writers = *rc::gen::inRange(1, 6), readers = *rc::gen::inRange(1, 6);
  const Manifest manifest = save(target(), tensors, any_deal(tensors, writers), writers);
  std::vector<std::unique_ptr<Reader>> all;
  for (int i = 0; i < readers; ++i) all.push_back(std::make_unique<Reader>(target()));
  ReadProof sum = all[0]->proof();
  for (const Dealt& one : any_deal(tensors, readers)) {
    const Reader& reader = *all[static_cast<size_t>(one.writer)];
    ReadProof proof = reader.proof();
    const SavedTensor& tensor = tensors[one.tensor];
    std::vector<float> values(static_cast<size_t>(one.hi - one.lo), -7);
    reader.read(tensor.kind, tensor.grain_param(one.grain), one.lo, one.hi, values.data(), &proof);
    RC_ASSERT(values == values_of(tensor, one.grain, one.lo, one.hi));
    add(sum, proof);
  }
  all[0]->check(sum);
  int64_t bytes = 0;
  for (const auto& reader : all) bytes += reader->bytes_read();
  RC_ASSERT(bytes == 4 * elements_of(manifest));
}

RC_GTEST_FIXTURE_PROP(ReaderTest, ReadInOtherGrains, ()) {
  const auto saved = any_tensors();
  const int writers = *rc::gen::inRange(1, 6);
  const Manifest manifest = save(target(), saved, any_deal(saved, writers), writers);
  const Reader reader(target());
  ReadProof proof = reader.proof();
  for (const SavedTensor& tensor : saved) {
    // Cut along another direction, or the same in another number, or not at all.
    SavedTensor other = whole(tensor.kind, tensor.name, tensor.shape);
    const int grains = *rc::gen::inRange(0, 5);
    if (grains > 0) {
      other.dim = *rc::gen::inRange(0, static_cast<int>(tensor.shape.size()));
      const int64_t along = tensor.shape[static_cast<size_t>(other.dim)];
      other.blocks = {(along + grains - 1) / grains * grains};
      other.grains = grains;
    }
    const bool same =
        other.blocks == tensor.blocks && other.dim == tensor.dim && other.grains == tensor.grains;
    RC_PRE(!same || tensor.blocks.empty());
    for (int grain = 0; grain < other.grains; ++grain) {
      const int64_t numel = other.grain_param(grain).numel;
      std::vector<float> values(static_cast<size_t>(numel), -7);
      const int64_t cut = *rc::gen::inRange<int64_t>(0, numel + 1);
      reader.read(tensor.kind, other.grain_param(grain), 0, cut, values.data(), &proof);
      reader.read(tensor.kind, other.grain_param(grain), cut, numel, values.data() + cut, &proof);
      RC_ASSERT(values == values_of(other, grain, 0, numel));
    }
  }
  reader.prove_padding(proof);
  reader.check(proof);
  RC_ASSERT(reader.bytes_read() == 4 * elements_of(manifest));
  reader.verify();
}

}  // namespace
}  // namespace lockstep::checkpoints
