// The same checkpoint in other files.

#include "lockstep/checkpoint/reshard.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "lockstep/base/error.h"
#include "tests/checkpoint/saved.h"
#include "tests/files/on_disk.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoints {
namespace {

namespace fs = std::filesystem;
using checkpoints::testing::deal;
using checkpoints::testing::save;
using checkpoints::testing::save_some;
using checkpoints::testing::some_tensors;
using checkpoints::testing::values_of;
using checkpoints::testing::whole;
using on_disk::message_of;

struct Reshard : ::testing::Test {
  Reshard() { save_some(from); }
  lockstep::testing::TempFolder folder;
  std::string from = folder.file("step_00000020");
  std::string to = folder.file("other");
};

TEST_F(Reshard, HoldsTheSameInAnyNumberOfFiles) {
  const Manifest before = read_manifest(from);
  for (const int files : {1, 3, 7, 40}) {
    SCOPED_TRACE(files);
    const std::string target = to + std::to_string(files);
    const Manifest after = reshard(from, target, files);
    EXPECT_EQ(std::ssize(after.files), files);
    EXPECT_EQ(after.param_digest, before.param_digest);
    EXPECT_EQ(after.state, before.state);
    EXPECT_EQ(after.identity, before.identity);
    EXPECT_EQ(after.world, before.world);
    const Reader reader(target);
    EXPECT_NO_THROW(reader.verify());
    EXPECT_EQ(reader.index().tensors.size(), some_tensors().size());
    for (const SavedTensor& tensor : some_tensors()) {
      const SavedTensor logical = whole(tensor.kind, tensor.name, tensor.shape);
      std::vector<float> values(static_cast<size_t>(logical.numel()));
      reader.read_logical(tensor.kind, tensor.name, 0, logical.numel(), values.data());
      EXPECT_EQ(values, values_of(logical, 0, 0, logical.numel())) << tensor.name;
      // And in the grains that a run computes in.
      for (int grain = 0; grain < tensor.grains; ++grain) {
        const plan::Param param = tensor.grain_param(grain);
        values.resize(static_cast<size_t>(param.numel));
        reader.read(tensor.kind, param, 0, param.numel, values.data());
        EXPECT_EQ(values, values_of(tensor, grain, 0, param.numel)) << param.name;
      }
    }
  }
}

TEST_F(Reshard, ReadsAndWritesEachElementOnce) {
  const Manifest after = reshard(from, to, 3);
  int64_t written = 0, smallest = 1 << 30, largest = 0;
  for (const PartFile& part : after.files) {
    written += part.elements;
    smallest = std::min(smallest, part.elements);
    largest = std::max(largest, part.elements);
  }
  int64_t logical = 0;
  for (const SavedTensor& tensor : some_tensors()) logical += tensor.numel();
  EXPECT_EQ(written, logical);
  EXPECT_LT(largest - smallest, 2 * 256);
}

/// Back and forth, or in the same number again: the same bytes.
TEST_F(Reshard, OneNumberOfFilesHasOneForm) {
  reshard(from, to, 2);
  reshard(to, folder.file("five"), 5);
  reshard(folder.file("five"), folder.file("again"), 2);
  for (const char* name :
       {"part_0000.safetensors", "part_0001.safetensors", kIndexFile, kManifestFile}) {
    EXPECT_EQ(on_disk::get(to + "/" + name), on_disk::get(folder.file("again") + "/" + name));
  }
}

/// What a process has of writable memory of its own; files that are mapped for reading do not
/// count.
rlim_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    rlim_t kilobytes = 0;
    if (word == "VmData:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

TEST_F(Reshard, HoldsABlockOnly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is part of the limit";
#endif
  const std::vector<SavedTensor> tensors = {whole(kParam, "w", {64, 1 << 17})};  // 32 MiB
  const std::string large = folder.file("large");
  save(large, tensors, deal(tensors, 1, 1 << 23), 1);
  const pid_t child = fork();
  if (child == 0) {
    malloc_trim(0);
    const rlim_t limit = data_bytes() + 12 * 1024 * 1024;
    const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
    setrlimit(RLIMIT_DATA, &limits);
    try {
      reshard(large, to, 2);
      _exit(0);
    } catch (const std::exception&) {
      _exit(1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_NO_THROW(Reader(to).verify());
}

TEST_F(Reshard, ADamagedOneIsNotCopied) {
  const std::string part = from + "/part_0002.safetensors";
  const std::string bytes = on_disk::get(part);
  // In values that are read, in the padding of grains, and one that makes another model.
  for (const size_t at : {bytes.size() - 1, bytes.size() / 2, size_t{5}}) {
    std::string other = bytes;
    other[at] ^= 1;
    on_disk::put(part, other);
    const std::string message = message_of<StateError>([this] { reshard(from, to, 3); });
    EXPECT_NE(message.find("part_0002.safetensors"), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(to));
    EXPECT_EQ(on_disk::files_in(folder.path()), 1) << "something is left";
  }
}

TEST_F(Reshard, DamagedPaddingIsSeen) {
  const Manifest manifest = read_manifest(from);
  const Index index = read_index(from, manifest);
  const SavedTensor* const wte = index.find(kParam, "wte.weight");
  ASSERT_NE(wte, nullptr);
  // Rows 61 to 63 are padding: the end of the last grain.
  const SavedSlice& last = wte->slices.back();
  const std::string path = from + "/" + manifest.files[static_cast<size_t>(last.file)].name;
  std::string bytes = on_disk::get(path);
  const auto file = files::SafetensorsFile::open(path);
  const auto& entry = file.info(entry_name(*wte, last));
  bytes[file.header_bytes().size() + static_cast<size_t>(entry.offset + entry.bytes) - 1] ^= 1;
  on_disk::put(path, bytes);
  const std::string message = message_of<StateError>([this] { reshard(from, to, 3); });
  EXPECT_NE(message.find(path), std::string::npos) << message;
}

TEST_F(Reshard, NothingIsWrittenOver) {
  fs::create_directories(to);
  EXPECT_THROW(reshard(from, to, 1), UsageError);
  EXPECT_THROW(reshard(from, from, 1), UsageError);
  EXPECT_THROW(reshard(from, folder.file("x"), 0), UsageError);
  EXPECT_NO_THROW(Reader(from).verify());
}

}  // namespace
}  // namespace lockstep::checkpoints
