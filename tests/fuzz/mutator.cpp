#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/counter_random.h"

namespace lockstep::fuzz {
namespace {

using namespace std::string_view_literals;

constexpr size_t kMostBytes = 1 << 16;

/// What stands where lengths, counts and brackets stand.
constexpr std::array kPieces = {"0"sv,
                                "-0"sv,
                                "1e3"sv,
                                "9223372036854775807"sv,
                                "9223372036854775808"sv,
                                "18446744073709551615"sv,
                                "4294967296"sv,
                                "\""sv,
                                "\\u0000"sv,
                                "\\ud800"sv,
                                "{"sv,
                                "}"sv,
                                "["sv,
                                "]"sv,
                                ","sv,
                                ":"sv,
                                "null"sv,
                                "true"sv,
                                "\0"sv,
                                "\xff"sv,
                                "\n"sv,
                                "{\"\":{}}"sv,
                                "[[[[[[[["sv};
constexpr std::array<uint64_t, 12> kNumbers = {0,          1,          127,        255,
                                               65'535,     1ULL << 31, 1ULL << 32, 1ULL << 60,
                                               1ULL << 62, 1ULL << 63, ~0ULL >> 1, ~0ULL};

class Draws {
 public:
  Draws(std::string_view purpose, uint64_t number)
      : key_(base::RandomKey(1).with(purpose).with(number)) {}

  size_t below(size_t bound) {
    return bound == 0 ? 0 : static_cast<size_t>(key_.below(count_++, bound));
  }

 private:
  base::RandomKey key_;
  uint64_t count_ = 0;
};

void change(std::string& bytes, const std::vector<std::string>& seeds, Draws& draws) {
  const size_t at = draws.below(bytes.size() + 1);
  const size_t run = std::min(draws.below(32) + 1, bytes.size() - at);
  switch (draws.below(8)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << draws.below(8)));
      break;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<char>(draws.below(256));
      break;
    case 2: {  // a number of 1, 2, 4 or 8 bytes
      const uint64_t number = kNumbers[draws.below(kNumbers.size())];
      const size_t width = std::min<size_t>(size_t{1} << draws.below(4), bytes.size() - at);
      std::memcpy(bytes.data() + at, &number, width);
      break;
    }
    case 3:
      bytes.erase(at, run);
      break;
    case 4:
      bytes.insert(at, bytes.substr(at, run));
      break;
    case 5: {
      const std::string_view piece = kPieces[draws.below(kPieces.size())];
      bytes.replace(at, draws.below(2) * run, piece);
      break;
    }
    case 6: {
      const std::string& other = seeds[draws.below(seeds.size())];
      const size_t from = draws.below(other.size() + 1);
      bytes.replace(at, draws.below(2) * run, other.substr(from, draws.below(64)));
      break;
    }
    default:
      bytes.resize(draws.below(2) == 0 ? at : std::min(bytes.size() + run, kMostBytes));
  }
}

}  // namespace

std::string mutated(const std::vector<std::string>& seeds, std::string_view purpose,
                    uint64_t number) {
  Draws draws(purpose, number);
  std::string bytes = seeds.empty() ? "" : seeds[draws.below(seeds.size())];
  for (size_t left = draws.below(8) + 1; left > 0; --left) {
    if (!seeds.empty() && bytes.size() < kMostBytes) change(bytes, seeds, draws);
  }
  return bytes;
}

}  // namespace lockstep::fuzz
