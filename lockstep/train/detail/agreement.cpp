#include "lockstep/train/detail/agreement.h"

#include "lockstep/base/str.h"

namespace lockstep::detail {

void refuse_unused(ProcessGroup& group, std::vector<std::string> unused,
                   const std::string& advice) {
  constexpr size_t kShown = 8;
  const size_t more = unused.size() > kShown ? unused.size() - kShown : 0;
  unused.resize(unused.size() - more);
  for (std::string& name : unused) name = "\"" + name + "\"";
  if (more > 0) unused.push_back(base::str(more, " more"));
  const std::vector<std::string> all = group.gather_text(base::joined(unused));
  std::string where;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) where += base::str("\n  rank ", rank, ": ", all[rank]);
  }
  throw AgreedRefusal(base::str("[rank ", group.rank(), " of ", group.size(),
                                "] parameters took no part in the loss:", where, "\n  ", advice,
                                " The gradients of this step are not to be used."));
}

}  // namespace lockstep::detail
