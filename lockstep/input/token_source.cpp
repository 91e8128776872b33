#include "lockstep/input/token_source.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::input {
namespace {

constexpr int64_t kScanTokens = 64 * KiB;

/// Calls visit(first, ids) for pieces of the source in order.
template <class Visit>
void scan(const TokenSource& source, Visit visit) {
  std::vector<int64_t> ids;
  for (int64_t first = 0; first < source.size(); first += kScanTokens) {
    ids.resize(static_cast<size_t>(std::min(kScanTokens, source.size() - first)));
    source.read(first, std::ssize(ids), ids.data());
    visit(first, ids);
  }
}

}  // namespace

void TokenSource::check_ids(int64_t vocab) const {
  scan(*this, [&](int64_t first, const std::vector<int64_t>& ids) {
    const auto offending =
        std::find_if(ids.begin(), ids.end(), [vocab](int64_t id) { return id < 0 || id >= vocab; });
    if (offending == ids.end()) return;
    throw EnvironmentError(base::str(path(), ": token ", first + (offending - ids.begin()),
                                     " has id ", *offending, ", but the vocabulary has ", vocab,
                                     " ids, 0 to ", vocab - 1,
                                     ".\n  Set data.tokenizer or model.vocab to what the data were "
                                     "made with, or prepare the data with the model's tokenizer."));
  });
}

int64_t TokenSource::largest_id() const {
  int64_t largest = 0;
  scan(*this, [&](int64_t, const std::vector<int64_t>& ids) {
    largest = std::max(largest, *std::max_element(ids.begin(), ids.end()));
  });
  return largest;
}

void require_window(const TokenSource& tokens, int64_t context) {
  if (context >= 1 && tokens.size() > context) return;
  throw EnvironmentError(base::str(
      tokens.path(), " has ", base::with_commas(tokens.size()),
      tokens.size() == 1 ? " token" : " tokens", "; one window of context ", context, " needs ",
      base::with_commas(context + 1), ".\n  ",
      tokens.size() > 1
          ? base::str("The largest context that fits is ", tokens.size() - 1, " (model.context).")
          : std::string("No window fits it.")));
}

}  // namespace lockstep::input
