/// Activations on disk between forward and backward.
///
/// `store` copies a tensor's storage aside and writes it while forward goes on; `load` brings it
/// back, and starts to read what was stored before it, since backward goes backwards. A storage
/// that is stored again, unchanged, as whatever view, is there once. The value is that of the
/// moment of `store`: later changes in place do not reach it.
///
/// Moves   each storage once to the file, and at most once back: not if it is still on its way
/// there
///                                             test: ActivationStoreTest.EachStorageMovesOnce
/// Holds   `in_flight_bytes` on their way to the file, one storage read ahead, and what was loaded
///         while handles of it are left        test: ActivationStoreTest.HoldsWhatIsOnItsWay
/// Source  Rajbhandari et al. 2021, "ZeRO-Infinity", SC
///
/// One thread at a time uses a store, its file and its handles.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/files/block_file.h"
#include "lockstep/torch_inside/saved_tensors.h"

namespace lockstep::memory {

struct ActivationStoreOptions {
  /// Copies whose writes are under way; `store` waits for the oldest beyond that.
  int64_t in_flight_bytes = int64_t{64} << 20;
};

class ActivationStore {
 public:
  struct Impl;
  struct Stored;

  /// What was stored; its room in the file is used again once no handle is left.
  struct Handle {
    std::shared_ptr<Stored> stored;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t offset = 0;  // in elements of the storage
    at::ScalarType dtype = at::kFloat;
  };

  /// Uses [first, first + bytes) of `file`, both multiples of 4096. Handles keep the file alive.
  ActivationStore(std::shared_ptr<files::BlockFile> file, int64_t first, int64_t bytes,
                  const ActivationStoreOptions& options = {});

  /// `tensor` is a dense CPU tensor. Throws EnvironmentError: the room is used up; StateError: the
  /// file has failed.
  [[nodiscard]] Handle store(const at::Tensor& tensor);
  /// On memory that it shares with other loads of the same storage. Throws StateError.
  [[nodiscard]] static at::Tensor load(const Handle& handle);

  /// Of the file, in whole pages.
  int64_t stored_bytes() const;

 private:
  std::shared_ptr<Impl> impl_;
};

/// While it lives, what autograd saves in this thread goes through `store` (saved_tensors.h says
/// what does not). Backward may come later.
class ActivationOffloadScope {
 public:
  explicit ActivationOffloadScope(ActivationStore& store);

 private:
  torch_inside::SavedTensorScope scope_;
};

}  // namespace lockstep::memory
