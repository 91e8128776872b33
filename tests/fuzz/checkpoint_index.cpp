// The index of a checkpoint of three files.

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/manifest.h"
#include "tests/fuzz/target.h"

LOCKSTEP_FUZZ_TARGET(checkpoint_index) {
  using namespace lockstep;
  try {
    const auto index = checkpoints::parse_index(bytes, /*files=*/3);
    const std::string again = checkpoints::index_text(index);
    fuzz::require(checkpoints::index_text(checkpoints::parse_index(again, 3)) == again,
                  "another index");
    for (const auto& tensor : index.tensors) {
      fuzz::require(index.find(tensor.kind, tensor.name) == &tensor, "a tensor that is not found");
      int64_t elements = 0;
      for (const auto& slice : tensor.slices) {
        fuzz::require(slice.file >= 0 && slice.file < 3, "a slice in no file");
        elements += slice.hi - slice.lo;
      }
      fuzz::require(elements >= tensor.numel(), "elements that lie nowhere");
    }
  } catch (const StateError&) {
  }
}
