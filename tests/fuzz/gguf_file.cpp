// A GGUF file: what opens can be read, and nothing beside it.

#include "lockstep/files/gguf_file.h"

#include <vector>

#include "lockstep/base/error.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/unnamed_file.h"

LOCKSTEP_FUZZ_TARGET(gguf_file) {
  using namespace lockstep;
  const fuzz::UnnamedFile on_disk(bytes);
  try {
    const auto file = files::GgufFile::open(on_disk.path());
    int64_t behind = 0;
    for (const auto& info : file.tensors()) {
      fuzz::require(info.bytes > 0 && info.bytes <= std::ssize(bytes),
                    "a tensor of no file's size");
      fuzz::require(info.offset >= behind, "tensors that overlap");
      behind = info.offset + info.bytes;
      std::vector<char> values(static_cast<size_t>(info.bytes));
      file.read(info.name, values.data(), info.bytes);
    }
    fuzz::require(behind <= std::ssize(bytes), "tensors beyond the end");
    for (const auto& [name, value] : file.keys()) {
      const auto* found = file.find(name);
      fuzz::require(found != nullptr && found->index() == value.index(), "a key that is not found");
    }
  } catch (const StateError&) {
  }
}
