/// Arrays of bytes in the IDX format, in which MNIST and its kin are published, plain or gzipped.
///
///   0 0 8 D | D dims, 4 bytes each, most significant first | the bytes, last dim fastest
///
/// Source  http://yann.lecun.com/exdb/mnist/
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::files {

struct IdxArray {
  std::vector<int64_t> dims;
  std::string bytes;
};

/// Throws EnvironmentError naming the file and what is wrong with it: not there, no gzip to its
/// end, another type than bytes, more than 3 dims, or another length than its dims say. What a
/// length in the file says is never asked for before it is there; at most 1 GiB is unpacked.
IdxArray read_idx(const std::string& path);

}  // namespace lockstep::files
