#include "lockstep/train/replicas.h"

#include <cstring>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

template <class Named>
std::vector<NamedTensor> each_once(const Named& items) {
  std::vector<NamedTensor> tensors;
  std::map<const void*, bool> seen;
  for (const auto& item : items) {
    // A buffer that is registered but not there (BatchNorm without running statistics).
    if (!item.value().defined()) continue;
    if (!seen.emplace(item.value().unsafeGetTensorImpl(), true).second) continue;
    tensors.push_back({item.key(), item.value()});
  }
  return tensors;
}

template <class Named>
void describe_each(const Named& items, const char* kind, std::vector<std::string>& lines) {
  std::map<const void*, std::string> first_name;
  for (const auto& item : items) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined()) {
      lines.push_back(base::str(kind, " \"", item.key(), "\" undefined"));
      continue;
    }
    const auto [first, is_new] = first_name.emplace(tensor.unsafeGetTensorImpl(), item.key());
    lines.push_back(
        is_new ? base::str(kind, " \"", item.key(), "\" ", tensor.sizes(), " ",
                           tensor.dtype().name(), tensor.requires_grad() ? "" : " (frozen)")
               : base::str(kind, " \"", item.key(), "\" shared with \"", first->second, "\""));
  }
}

/// Of everything that makes up the bits of a tensor but its strides.
uint64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor packed = tensor.detach().contiguous();
  const auto* bytes = static_cast<const char*>(packed.data_ptr());
  const auto size = static_cast<int64_t>(packed.nbytes());
  uint64_t hash = static_cast<uint64_t>(size);
  for (int64_t at = 0; at < size; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, static_cast<size_t>(std::min<int64_t>(8, size - at)));
    hash = base::mix64(hash ^ word);
  }
  return hash;
}

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The first rank whose text is not rank 0's; -1 if all are alike.
int first_unlike(const std::vector<std::string>& by_rank) {
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != by_rank[0]) return static_cast<int>(rank);
  }
  return -1;
}

/// Whose text is not that of most ranks: "rank 2 are not those of the others". Without a majority
/// nobody can tell: "rank 1 are not those of rank 0".
std::string odd_ones_out(const std::vector<std::string>& by_rank) {
  const auto holders = [&](const std::string& text) {
    return std::count(by_rank.begin(), by_rank.end(), text);
  };
  for (const std::string& text : by_rank) {
    if (2 * holders(text) <= std::ssize(by_rank)) continue;
    std::vector<std::string> odd;
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      if (by_rank[rank] != text) odd.push_back(std::to_string(rank));
    }
    return base::str(odd.size() == 1 ? "rank " : "ranks ", base::joined(odd),
                     " are not those of the others");
  }
  return base::str("rank ", first_unlike(by_rank), " are not those of rank 0");
}

std::string line_at(const std::vector<std::string>& lines, size_t at) {
  return at < lines.size() ? lines[at] : "nothing more";
}

}  // namespace

std::vector<NamedTensor> parameters_of(const torch::nn::Module& module) {
  return each_once(module.named_parameters(/*recurse=*/true));
}

std::vector<NamedTensor> buffers_of(const torch::nn::Module& module) {
  return each_once(module.named_buffers(/*recurse=*/true));
}

std::vector<std::string> describe(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  describe_each(module.named_parameters(/*recurse=*/true), "parameter", lines);
  describe_each(module.named_buffers(/*recurse=*/true), "buffer", lines);
  return lines;
}

void require_same_lines(ProcessGroup& group, const std::string& what,
                        const std::vector<std::string>& lines) {
  const std::string mine = joined_lines(lines);
  // Two short texts when all is well: models may have thousands of parameters.
  const auto short_forms = group.gather_text(base::str(mine.size(), " ", base::fnv1a(mine)));
  if (first_unlike(short_forms) < 0) return;
  const std::vector<std::string> all = group.gather_text(mine);
  const int unlike = first_unlike(all);
  const std::vector<std::string> ours = lines_of(all[0]);
  const std::vector<std::string> theirs = lines_of(all[static_cast<size_t>(unlike)]);
  size_t at = 0;
  while (at < ours.size() && at < theirs.size() && ours[at] == theirs[at]) ++at;
  throw UsageError(
      base::str("[rank ", group.rank(), " of ", group.size(), "] ", what,
                " must be alike on all ranks of \"", group.name(), "\", but rank 0 has ",
                line_at(ours, at), " where rank ", unlike, " has ", line_at(theirs, at),
                ".\n  Build them from the same settings on every rank, in the same order. "
                "No weight has been sent."));
}

void take_from(ProcessGroup& group, int root, const std::vector<NamedTensor>& tensors) {
  if (group.size() == 1) return;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // what travels, for strided tensors
  std::vector<Work> works;
  for (const NamedTensor& named : tensors) {
    at::Tensor values = named.tensor.detach();
    if (!values.is_contiguous()) {
      copies.emplace_back(values, values.contiguous());
      values = copies.back().second;
    }
    works.push_back(group.broadcast(values, root));
  }
  for (Work& work : works) work.wait();
  for (auto& [home, packed] : copies) home.copy_(packed);
}

void require_equal_bits(ProcessGroup& group, const std::vector<NamedTensor>& tensors) {
  if (group.size() == 1) return;
  std::vector<std::string> lines;
  for (const NamedTensor& named : tensors) {
    lines.push_back(base::str(named.name, " ", hash_of(named.tensor)));
  }
  const std::vector<std::string> all = group.gather_text(joined_lines(lines));
  if (first_unlike(all) < 0) return;
  std::vector<std::vector<std::string>> by_rank;
  for (const std::string& text : all) by_rank.push_back(lines_of(text));
  for (size_t at = 0; at < tensors.size(); ++at) {
    std::vector<std::string> of_tensor;
    for (const auto& theirs : by_rank) of_tensor.push_back(line_at(theirs, at));
    if (first_unlike(of_tensor) < 0) continue;
    throw CommError(
        base::str("[rank ", group.rank(), " of ", group.size(), "] replicas differ: the bits of \"",
                  tensors[at].name, "\" on ", odd_ones_out(of_tensor),
                  ".\n  Was a parameter changed on one rank, or an optimizer stepped with "
                  "gradients that were "
                  "not reduced? If neither: does that machine's memory keep what it is given?"));
  }
}

}  // namespace lockstep
