// A second opinion on the digest of a model: reads a .safetensors file, prints 32 hex digits.
//
//   reference_digest FILE.safetensors
//
// Written from the definitions alone (the file format, and the digest below) and sharing no code
// with the library, so that an error in one is not an error in both.
//
//   x = mix(hash(name) + index),  a = mix(x xor bits),  c = mix(a)
//   low = sum of a, high = sum of c, modulo 2^64; printed high part first

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using u64 = std::uint64_t;
using Bytes = std::vector<unsigned char>;

u64 little_endian(const unsigned char* bytes, int width) {
  u64 value = 0;
  for (int i = width - 1; i >= 0; --i) value = value * 256 + bytes[i];
  return value;
}

// One step of SplitMix64 from the state z.
u64 mix(u64 z) {
  z += 11400714819323198485ull;
  z ^= z >> 30;
  z *= 13787848793156543929ull;
  z ^= z >> 27;
  z *= 10723151780598845931ull;
  z ^= z >> 31;
  return z;
}

// FNV-1a with 64 bits.
u64 hash(const std::string& name) {
  u64 h = 14695981039346656037ull;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return h;
}

Bytes whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot be opened");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

nlohmann::json header_of(const Bytes& file, u64 header_bytes) {
  std::set<std::string> names;
  const auto refuse_a_name_twice = [&](int depth, nlohmann::json::parse_event_t event,
                                       const nlohmann::json& key) {
    if (depth == 1 && event == nlohmann::json::parse_event_t::key &&
        !names.insert(key.get<std::string>()).second) {
      throw std::runtime_error("has the tensor " + key.dump() + " twice");
    }
    return true;
  };
  const auto first = file.begin() + 8;
  const auto header = nlohmann::json::parse(
      first, first + static_cast<std::ptrdiff_t>(header_bytes), refuse_a_name_twice);
  if (!header.is_object()) throw std::runtime_error("has a header that is no object");
  return header;
}

struct Sums {
  u64 low = 0;
  u64 high = 0;
};

Sums digest(const Bytes& file) {
  if (file.size() < 8) throw std::runtime_error("is too short");
  const u64 header_bytes = little_endian(file.data(), 8);
  if (header_bytes > file.size() - 8) throw std::runtime_error("has a header longer than itself");
  const unsigned char* data = file.data() + 8 + header_bytes;
  const u64 data_bytes = file.size() - 8 - header_bytes;

  const nlohmann::json header = header_of(file, header_bytes);
  Sums sums;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    if (tensor.at("dtype") != "F32") throw std::runtime_error(name + " is not F32");
    u64 elements = 1;
    for (const auto& size : tensor.at("shape")) elements *= size.get<u64>();
    const u64 begin = tensor.at("data_offsets").at(0).get<u64>();
    const u64 end = tensor.at("data_offsets").at(1).get<u64>();
    if (begin > end || end > data_bytes || end - begin != 4 * elements) {
      throw std::runtime_error(name + " has offsets that do not fit its shape or the file");
    }
    for (u64 index = 0; index < elements; ++index) {
      const u64 bits = little_endian(data + begin + 4 * index, 4);
      const u64 x = mix(hash(name) + index);
      const u64 a = mix(x ^ bits);
      sums.low += a;
      sums.high += mix(a);
    }
  }
  return sums;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: reference_digest FILE.safetensors\n");
    return 2;
  }
  try {
    const Sums sums = digest(whole_file(argv[1]));
    std::printf("%016llx%016llx\n", static_cast<unsigned long long>(sums.high),
                static_cast<unsigned long long>(sums.low));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reference_digest: %s: %s\n", argv[1], error.what());
    return 1;
  }
}
