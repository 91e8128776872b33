#include "lockstep/files/token_writer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/detail/megatron_index.h"

namespace lockstep::files {
namespace {

template <class Id>
void narrow(const std::vector<int64_t>& ids, int64_t first, const std::string& path,
            std::string* bytes) {
  bytes->resize(ids.size() * sizeof(Id));
  auto* out = bytes->data();
  for (size_t i = 0; i < ids.size(); ++i, out += sizeof(Id)) {
    const auto id = static_cast<Id>(ids[i]);
    if (static_cast<int64_t>(id) != ids[i]) {
      throw UsageError(base::str(path, ": id ", ids[i], " of token ",
                                 first + static_cast<int64_t>(i), " does not fit ", sizeof(Id),
                                 sizeof(Id) == 1 ? " byte." : " bytes."));
    }
    std::char_traits<char>::copy(out, reinterpret_cast<const char*>(&id), sizeof id);
  }
}

/// The array of tokens, which every format has.
class FlatWriter : public TokenWriter {
 public:
  FlatWriter(const std::string& path, TokenType type) : path_(path), type_(type), file_(path) {}

  void write(const std::vector<int64_t>& ids) override {
    switch (type_) {
      case TokenType::u8:
        narrow<uint8_t>(ids, tokens_, path_, &bytes_);
        break;
      case TokenType::i8:
        narrow<int8_t>(ids, tokens_, path_, &bytes_);
        break;
      case TokenType::i16:
        narrow<int16_t>(ids, tokens_, path_, &bytes_);
        break;
      case TokenType::i32:
        narrow<int32_t>(ids, tokens_, path_, &bytes_);
        break;
      case TokenType::i64:
        narrow<int64_t>(ids, tokens_, path_, &bytes_);
        break;
      case TokenType::u16:
        narrow<uint16_t>(ids, tokens_, path_, &bytes_);
        break;
      case TokenType::u32:
        narrow<uint32_t>(ids, tokens_, path_, &bytes_);
        break;
    }
    file_.write(bytes_);
    tokens_ += std::ssize(ids);
  }
  void end_document() override {}
  void commit() override { file_.commit(); }
  int64_t tokens() const override { return tokens_; }

 protected:
  std::string path_;
  TokenType type_;
  AtomicFile file_;
  int64_t tokens_ = 0;
  std::string bytes_;  // of one call
};

class LlmcWriter : public FlatWriter {
 public:
  LlmcWriter(const std::string& path, TokenType type) : FlatWriter(path, type) {
    file_.write(header());
  }

  /// The count is known at the end only, and stands in front.
  void commit() override {
    if (tokens_ > std::numeric_limits<int32_t>::max()) {
      throw UsageError(base::str(path_, " would have ", tokens_,
                                 " tokens; llm.c's header counts up to ",
                                 std::numeric_limits<int32_t>::max(), ". Write several files."));
    }
    file_.write_at_front(header());
    file_.commit();
  }

 private:
  std::string header() const {
    const bool llama = type_ == TokenType::u32;
    const std::array<int32_t, 3> words = {llama ? kLlmcLlamaMagic : kLlmcGpt2Magic, llama ? 7 : 1,
                                          static_cast<int32_t>(tokens_)};
    std::string bytes(reinterpret_cast<const char*>(words.data()), sizeof words);
    bytes.resize(kLlmcHeaderBytes, '\0');
    return bytes;
  }
};

class MegatronWriter : public FlatWriter {
 public:
  MegatronWriter(const std::string& path, TokenType type)
      : FlatWriter(path, type), index_(megatron_index_path(path)) {}

  void end_document() override {
    for (int64_t left = tokens_ - document_start_; left > 0;) {
      const auto length = std::min<int64_t>(left, std::numeric_limits<int32_t>::max());
      lengths_.push_back(static_cast<int32_t>(length));
      left -= length;
    }
    document_start_ = tokens_;
    documents_.push_back(std::ssize(lengths_));
  }

  void commit() override {
    if (document_start_ < tokens_) end_document();
    std::vector<int64_t> offsets;
    int64_t offset = 0;
    for (const int32_t length : lengths_) {
      offsets.push_back(offset);
      offset += length * bytes_of(type_);
    }
    index_.write(kMegatronMagic);
    put<uint64_t>(1);
    put<uint8_t>(static_cast<uint8_t>(detail::megatron_code(type_)));
    put<uint64_t>(lengths_.size());
    put<uint64_t>(documents_.size());
    put_all(lengths_);
    put_all(offsets);
    put_all(documents_);
    // The index first: data without one would be taken for plain uint16.
    index_.commit();
    file_.commit();
  }

 private:
  template <class Number>
  void put(Number number) {
    index_.write(&number, sizeof number);
  }
  template <class Number>
  void put_all(const std::vector<Number>& numbers) {
    index_.write(numbers.data(), static_cast<int64_t>(numbers.size() * sizeof(Number)));
  }

  AtomicFile index_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_ = {0};
  int64_t document_start_ = 0;
};

}  // namespace

TokenType token_type_for(TokenFormat format, int64_t vocab_size) {
  if (format == TokenFormat::megatron) return vocab_size < 65'500 ? TokenType::u16 : TokenType::i32;
  return vocab_size <= 65'536 ? TokenType::u16 : TokenType::u32;
}

std::unique_ptr<TokenWriter> make_token_writer(const std::string& path, TokenFormat format,
                                               TokenType type) {
  const bool plain = type == TokenType::u16 || type == TokenType::u32;
  const bool has = format == TokenFormat::megatron ? detail::megatron_code(type) > 0 : plain;
  if (!has) {
    throw UsageError(
        base::str("the format ", name_of(format), " has no tokens of type ", name_of(type), "."));
  }
  if (!path.ends_with(".bin")) throw UsageError(path + ": a token file is named X.bin.");
  if (format == TokenFormat::llmc) return std::make_unique<LlmcWriter>(path, type);
  if (format == TokenFormat::megatron) return std::make_unique<MegatronWriter>(path, type);
  return std::make_unique<FlatWriter>(path, type);
}

}  // namespace lockstep::files
