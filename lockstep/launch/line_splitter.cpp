#include "lockstep/launch/line_splitter.h"

#include <algorithm>

namespace lockstep::launch {

void LineSplitter::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t room = most_bytes_ - begun_.size();
    if (end != std::string_view::npos && end <= room) {
      begun_.append(bytes.substr(0, end + 1));
      bytes.remove_prefix(end + 1);
    } else {
      const size_t taken = std::min(room, bytes.size());
      begun_.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      if (begun_.size() < most_bytes_ || bytes.empty()) continue;
      begun_ += '\n';
    }
    take_(begun_);
    begun_.clear();
  }
}

void LineSplitter::finish() {
  if (begun_.empty()) return;
  begun_ += '\n';
  take_(begun_);
  begun_.clear();
}

}  // namespace lockstep::launch
