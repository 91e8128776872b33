#include "lockstep/files/byte_tokenizer.h"

namespace lockstep::files {
namespace {

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < ByteTokenizer::kVocabSize; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

}  // namespace

const std::string& ByteTokenizer::name() const {
  static const std::string name = kName;
  return name;
}

void ByteTokenizer::encode(std::string_view text, std::vector<int64_t>* ids) {
  ids->reserve(ids->size() + text.size());
  for (const char c : text) ids->push_back(static_cast<unsigned char>(c));
}

std::optional<std::string_view> ByteTokenizer::token(int64_t id) const {
  static const std::string bytes = all_bytes();
  if (id < 0 || id >= kVocabSize) return std::nullopt;
  return std::string_view(bytes).substr(static_cast<size_t>(id), 1);
}

}  // namespace lockstep::files
