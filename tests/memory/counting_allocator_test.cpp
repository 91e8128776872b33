#include "lockstep/memory/counting_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/memory/detail/size_classes.h"

namespace lockstep::memory {
namespace {

at::Tensor bytes(int64_t count) { return torch::empty({count}, at::kByte); }

class CountingAllocator : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_counting_allocator(); }

  void SetUp() override {
    reset_peak();
    start_ = tensor_memory().current_bytes;
  }

  int64_t alive() const { return tensor_memory().current_bytes - start_; }
  int64_t peak() const { return tensor_memory().peak_bytes - start_; }

 private:
  int64_t start_ = 0;
};

TEST_F(CountingAllocator, CountsExactlyUpAndDown) {
  {
    const at::Tensor a = torch::empty({1000});
    EXPECT_EQ(alive(), 4000);
    const at::Tensor view = a.narrow(0, 10, 20);
    EXPECT_EQ(alive(), 4000);
    at::Tensor b = a.clone();
    EXPECT_EQ(alive(), 8000);
    b.resize_({1500});
    EXPECT_EQ(alive(), 10000);
    std::vector<float> outside(50);
    const at::Tensor c = at::from_blob(outside.data(), {50});
    EXPECT_EQ(alive(), 10000);
    b = at::Tensor();
    EXPECT_EQ(alive(), 4000);
  }
  EXPECT_EQ(alive(), 0);
}

TEST_F(CountingAllocator, EachSizeComesAlignedAndItsOwn) {
  std::vector<at::Tensor> tensors;
  int64_t total = 0;
  for (int64_t size : {1, 2, 63, 64, 65, 127, 128, 1000, 4095, 65537, 2097087, 2097152, 5000001}) {
    tensors.push_back(bytes(size));
    total += size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors.back().data_ptr()) % 64, 0u) << size;
    std::memset(tensors.back().data_ptr(), static_cast<int>(tensors.size()),
                static_cast<size_t>(size));
  }
  EXPECT_EQ(alive(), total);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE((tensors[i] == static_cast<int64_t>(i + 1)).all().item<bool>())
        << "block " << i << " overlaps another";
  }
}

TEST_F(CountingAllocator, NothingIsNullAndFree) {
  const at::Tensor none = bytes(0);
  EXPECT_EQ(none.data_ptr(), nullptr);
  EXPECT_EQ(alive(), 0);
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  const c10::DataPtr data = allocator->allocate(0);
  EXPECT_EQ(data.get(), nullptr);
  EXPECT_EQ(data.get_deleter(), allocator->raw_deleter());
}

TEST_F(CountingAllocator, RawPointersComeBack) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  ASSERT_NE(allocator->raw_deleter(), nullptr);
  void* const data = allocator->raw_allocate(777);
  EXPECT_EQ(alive(), 777);
  allocator->raw_deallocate(data);
  EXPECT_EQ(alive(), 0);
  // GELU goes through oneDNN, which allocates by raw pointers.
  const at::Tensor x = torch::rand({64, 64});
  EXPECT_TRUE(torch::allclose(torch::gelu(x), 0.5 * x * (1 + torch::erf(x / std::sqrt(2.0)))));
}

TEST_F(CountingAllocator, PeakIsTheMostAliveAtOnce) {
  { const at::Tensor a = bytes(1000), b = bytes(2000); }
  { const at::Tensor c = bytes(2500); }
  EXPECT_EQ(peak(), 3000);
  EXPECT_EQ(alive(), 0);
  reset_peak();
  EXPECT_EQ(peak(), 0);
  { const at::Tensor d = bytes(100); }
  EXPECT_EQ(peak(), 100);
}

#ifndef LOCKSTEP_SANITIZED

/// Bytes in huge pages of the mappings that hold [data, data + bytes).
int64_t huge_bytes(const void* data, int64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  std::ifstream maps("/proc/self/smaps");
  int64_t total = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      inside = from < first + static_cast<uintptr_t>(bytes) && first < to;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %ld kB", &kib) == 1) {
      total += kib * KiB;
    }
  }
  return total;
}

TEST_F(CountingAllocator, LargeTensorsAreInHugePages) {
  std::ifstream mode("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  if (!std::getline(mode, modes) || modes.find("[never]") != std::string::npos) {
    GTEST_SKIP() << "the system gives no huge pages";
  }
  const at::Tensor tensor = bytes(64 * MiB);
  tensor.fill_(1);
  // The last page is shared with what follows; a system short of whole huge pages gives fewer.
  EXPECT_GE(huge_bytes(tensor.data_ptr(), 64 * MiB), 48 * MiB);
}

TEST_F(CountingAllocator, FreedBlocksAreUsedAgain) {
  constexpr int64_t kSize = 3100000;
  at::Tensor a = bytes(kSize);
  const void* const block = a.data_ptr();
  const int64_t cached = tensor_memory().cached_bytes;
  a = at::Tensor();
  const int64_t kept = tensor_memory().cached_bytes - cached;
  EXPECT_GE(kept, kSize);
  EXPECT_LE(kept, (kSize + 64) / 8 * 9);
  a = bytes(kSize - 100);  // of the same class
  EXPECT_EQ(a.data_ptr(), block);
  EXPECT_EQ(tensor_memory().cached_bytes, cached);
  EXPECT_EQ(alive(), kSize - 100);
}

TEST_F(CountingAllocator, KeepsLittleMoreThanWasEverAlive) {
  // Twenty tensors of different classes, one after another: 20 to 39 MiB each, over 500 MiB if all
  // were kept, though never more than 39 MiB were alive at once here.
  for (int64_t i = 0; i < 20; ++i) bytes((20 + i) * MiB);
  const MemoryCount count = tensor_memory();
  const int64_t most = 45 * MiB + count.current_bytes;  // in whole blocks
  EXPECT_LE(count.cached_bytes, most + most / 4 + 64 * MiB);
  EXPECT_GT(count.cached_bytes, 0);
}

#endif

TEST_F(CountingAllocator, RefusesTheImpossibleByName) {
  const at::Tensor held = bytes(3 * MiB);
  try {
    bytes(int64_t{1} << 62);
    FAIL() << "allocated";
  } catch (const OutOfMemory& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("no memory for a tensor of"), std::string::npos) << message;
    EXPECT_NE(message.find("are alive"), std::string::npos) << message;
  }
  EXPECT_EQ(alive(), 3 * MiB);
}

TEST_F(CountingAllocator, ManyThreadsLoseNothing) {
  std::vector<std::thread> threads;
  std::vector<at::Tensor> passed_on(3);
  std::vector<int> intact(3, 0);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      for (int64_t round = 0; round < 2000; ++round) {
        const int64_t size = 1 + (round * 7919 + rank * 104729) % 20000;
        const at::Tensor a = bytes(size), b = bytes(size);
        std::memset(a.data_ptr(), rank + 1, static_cast<size_t>(size));
        std::memset(b.data_ptr(), rank + 101, static_cast<size_t>(size));
        const auto* const first = a.data_ptr<uint8_t>();
        const auto* const second = b.data_ptr<uint8_t>();
        intact[rank] += first[0] == rank + 1 && first[size - 1] == rank + 1 &&
                        second[0] == rank + 101 && second[size - 1] == rank + 101;
      }
      passed_on[rank] = bytes(1000);  // freed by another thread
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(intact, (std::vector<int>{2000, 2000, 2000}));
  EXPECT_EQ(alive(), 3000);
  passed_on.clear();
  EXPECT_EQ(alive(), 0);
}

TEST(SizeClasses, AscendByAtMostAnEighth) {
  EXPECT_EQ(detail::class_bytes(0), 128);
  for (int c = 1; c < detail::kClasses; ++c) {
    EXPECT_GT(detail::class_bytes(c), detail::class_bytes(c - 1));
    EXPECT_LE(detail::class_bytes(c), detail::class_bytes(c - 1) / 8 * 9);
  }
}

TEST(SizeClasses, SmallestThatFits) {
  EXPECT_EQ(detail::class_of(1), 0);
  EXPECT_EQ(detail::class_of(128), 0);
  for (int c = 1; c < detail::kClasses; ++c) {
    EXPECT_EQ(detail::class_of(detail::class_bytes(c)), c);
    EXPECT_EQ(detail::class_of(detail::class_bytes(c - 1) + 1), c);
  }
}

}  // namespace
}  // namespace lockstep::memory
