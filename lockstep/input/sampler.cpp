#include "lockstep/input/sampler.h"

#include <bit>

#include "lockstep/base/assert.h"
#include "lockstep/base/counter_random.h"
#include "lockstep/base/hash.h"

namespace lockstep::input {
namespace {

// Four rounds make a Feistel network a good permutation of a large domain (Luby and Rackoff 1988);
// a domain of four or sixteen values needs more to mix.
constexpr uint64_t kRounds = 8;

}  // namespace

Permutation::Permutation(int64_t size, uint64_t key)
    : size_(size),
      half_bits_(size > 1 ? (std::bit_width(static_cast<uint64_t>(size - 1)) + 1) / 2 : 0),
      key_(key) {
  LOCKSTEP_ASSERT(size >= 1 && half_bits_ <= 31, "a permutation of 1 to 2^62 values");
}

int64_t Permutation::operator()(int64_t index) const {
  LOCKSTEP_ASSERT(index >= 0 && index < size_, "the index lies in the permutation's domain");
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(index);
  do {  // the network permutes up to 4 x size values: walk its cycle until it comes back inside
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed =
          left ^ (base::mix64(key_ ^ base::mix64(right * kRounds + round)) & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

int64_t Sampler::first_token(int64_t sample) const {
  LOCKSTEP_ASSERT(sample >= 0 && windows() > 0, "a sample of data with at least one window");
  const int64_t epoch = epoch_of(sample);
  const int64_t place = sample % windows();
  if (!shuffle) return place * context;
  const auto key = base::RandomKey(seed).with("sampler").with(static_cast<uint64_t>(epoch));
  return Permutation(windows(), key.bits(0))(place) * context;
}

int64_t evaluation_token(int64_t tokens, int64_t context, int64_t count, int64_t index) {
  const int64_t windows = Sampler{.tokens = tokens, .context = context}.windows();
  LOCKSTEP_ASSERT(windows > 0 && index >= 0 && index < count, "an evaluation window that exists");
  return static_cast<int64_t>(static_cast<__int128>(index) * windows / count) * context;
}

}  // namespace lockstep::input
