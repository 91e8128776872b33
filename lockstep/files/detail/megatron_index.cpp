#include "lockstep/files/detail/megatron_index.h"

#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::files::detail {
namespace {

[[noreturn]] void bad(const std::string& reason) { throw EnvironmentError(reason); }

template <class Number>
Number number_at(std::string_view bytes, int64_t position) {
  Number value{};
  std::memcpy(&value, bytes.data() + position, sizeof value);
  return value;
}

struct Code {
  int code;
  TokenType type;
};
constexpr std::array<Code, 6> kCodes = {{{1, TokenType::u8},
                                         {2, TokenType::i8},
                                         {3, TokenType::i16},
                                         {4, TokenType::i32},
                                         {5, TokenType::i64},
                                         {8, TokenType::u16}}};

TokenType type_of_code(int code) {
  for (const Code& known : kCodes) {
    if (known.code == code) return known.type;
  }
  if (code == 6 || code == 7) bad("its type code at byte 17 says floating point, no tokens");
  bad(base::str("its type code at byte 17 is ", code, "; known are 1 to 8"));
}

/// The counts S and D, once it is sure that the arrays they announce are there.
struct Counts {
  int64_t sequences;
  int64_t documents;
};

Counts counts_of(std::string_view index) {
  const auto size = static_cast<uint64_t>(index.size());
  const auto sequences = number_at<uint64_t>(index, 18);
  const auto documents = number_at<uint64_t>(index, 26);
  const uint64_t room = size - kMegatronHeaderBytes;
  if (sequences > room / 12 || documents > room / 8 || 12 * sequences + 8 * documents > room) {
    bad(base::str("it announces ", sequences, " sequences and ", documents,
                  " document entries, more than its ", size, " bytes hold: it is cut short"));
  }
  const uint64_t rest = room - 12 * sequences - 8 * documents;
  if (rest != 0 && rest != sequences) {
    bad(base::str(rest, " bytes follow its arrays, from byte ", size - rest, " on"));
  }
  return {static_cast<int64_t>(sequences), static_cast<int64_t>(documents)};
}

/// First token of each sequence, and the end of the last.
std::vector<int64_t> sequence_starts(std::string_view index, const Counts& counts,
                                     int64_t token_bytes) {
  std::vector<int64_t> starts(static_cast<size_t>(counts.sequences) + 1);
  int64_t tokens = 0;
  for (int64_t s = 0; s < counts.sequences; ++s) {
    const int64_t length_at = kMegatronHeaderBytes + 4 * s;
    const int64_t offset_at = kMegatronHeaderBytes + 4 * counts.sequences + 8 * s;
    const auto length = number_at<int32_t>(index, length_at);
    const auto offset = number_at<int64_t>(index, offset_at);
    if (length < 0) {
      bad(base::str("sequence ", s, " has length ", length, " (byte ", length_at, ")"));
    }
    if (offset != tokens * token_bytes) {
      bad(base::str("sequence ", s, " begins at byte ", offset, " of the data (byte ", offset_at,
                    "), but those before it end at ", tokens * token_bytes));
    }
    starts[static_cast<size_t>(s)] = tokens;
    tokens += length;
  }
  starts.back() = tokens;
  return starts;
}

std::vector<int64_t> document_starts(std::string_view index, const Counts& counts,
                                     const std::vector<int64_t>& sequences) {
  std::vector<int64_t> starts;
  int64_t before = 0;
  for (int64_t d = 0; d < counts.documents; ++d) {
    const int64_t at = kMegatronHeaderBytes + 12 * counts.sequences + 8 * d;
    const auto boundary = number_at<int64_t>(index, at);
    const bool fits = d == 0 ? boundary == 0 : boundary >= before && boundary <= counts.sequences;
    if (!fits) {
      bad(base::str("document entry ", d, " (byte ", at, ") is ", boundary, ", after ", before,
                    " and with ", counts.sequences, " sequences"));
    }
    starts.push_back(sequences[static_cast<size_t>(boundary)]);
    before = boundary;
  }
  if (before != counts.sequences) {
    bad(base::str("its documents end at sequence ", before, " of ", counts.sequences));
  }
  return starts;
}

}  // namespace

int megatron_code(TokenType type) {
  for (const Code& known : kCodes) {
    if (known.type == type) return known.code;
  }
  return 0;
}

TokenLayout parse_megatron_index(std::string_view index, int64_t data_bytes) {
  if (!index.starts_with(kMegatronMagic)) bad("it does not begin with MMIDIDX");
  if (static_cast<int64_t>(index.size()) < kMegatronHeaderBytes) {
    bad(base::str("it has ", index.size(), " bytes; its header alone needs ",
                  kMegatronHeaderBytes));
  }
  const auto version = number_at<uint64_t>(index, 9);
  if (version != 1) bad(base::str("its version at byte 9 is ", version, "; known is 1"));
  const TokenType type = type_of_code(static_cast<unsigned char>(index[17]));
  const Counts counts = counts_of(index);
  const auto sequences = sequence_starts(index, counts, bytes_of(type));
  const int64_t tokens = sequences.back();
  if (tokens * bytes_of(type) != data_bytes) {
    bad(base::str("its sequences have ", tokens, " tokens of ", bytes_of(type),
                  bytes_of(type) == 1 ? " byte" : " bytes", ", but the data have ", data_bytes,
                  " bytes: ",
                  tokens * bytes_of(type) > data_bytes ? "they are cut short"
                                                       : "they belong to another index"));
  }
  return {.format = TokenFormat::megatron,
          .type = type,
          .offset = 0,
          .tokens = tokens,
          .documents = document_starts(index, counts, sequences)};
}

}  // namespace lockstep::files::detail
