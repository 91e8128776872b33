#include "lockstep/files/detail/piece_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/detail/utf8.h"

namespace lockstep::files::detail {

const char* const kGpt2Pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const char* const kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
    R"(|\s+\z|\s*[\r\n]|\s+(?!\S)|\s)";

const char* const kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?:'(?i:[sdmt]|ll|ve|re))?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?:'(?i:[sdmt]|ll|ve|re))?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct PieceSplitter::Impl {
  ~Impl() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }

  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  bool compiled = false;  // to machine code: not every processor has a compiler
};

PieceSplitter::PieceSplitter(const char* pattern) : impl_(std::make_unique<Impl>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  LOCKSTEP_ASSERT(impl_->code != nullptr, "the patterns are constants of this file");
  impl_->match = pcre2_match_data_create(1, nullptr);
  impl_->context = pcre2_match_context_create(nullptr);
  // A piece may be a megabyte long, and giving back one character of it counts as a step.
  pcre2_set_match_limit(impl_->context, UINT32_MAX);
  impl_->compiled = pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE) == 0;
  if (impl_->compiled) {
    impl_->stack = pcre2_jit_stack_create(32 * KiB, 8 * MiB, nullptr);
    pcre2_jit_stack_assign(impl_->context, nullptr, impl_->stack);
  }
}

PieceSplitter::~PieceSplitter() = default;

size_t PieceSplitter::end_of_piece(std::string_view text, size_t at) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int found = impl_->compiled
                        ? pcre2_jit_match(impl_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                          impl_->match, impl_->context)
                        : pcre2_match(impl_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                      impl_->match, impl_->context);
  if (found == PCRE2_ERROR_NOMATCH) return at + character_bytes(text.substr(at));
  if (found < 0) {
    PCRE2_UCHAR reason[128] = {};
    pcre2_get_error_message(found, reason, sizeof reason);
    throw OutOfMemory(base::str("the text cannot be cut into pieces at byte ", at, ": ",
                                reinterpret_cast<const char*>(reason), "."));
  }
  return pcre2_get_ovector_pointer(impl_->match)[1];
}

}  // namespace lockstep::files::detail
