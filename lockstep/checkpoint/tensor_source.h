/// Tensors of a model of another program under that program's names, as numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::checkpoints {

class TensorSource {
 public:
  struct Tensor {
    std::string dtype;  // as safetensors has it
    std::vector<int64_t> shape;
  };

  virtual ~TensorSource() = default;

  virtual const std::string& path() const = 0;
  virtual const std::map<std::string, Tensor>& tensors() const = 0;
  /// Elements first, first + 1, ... of a tensor of floating-point numbers, widened. Throws
  /// StateError naming the file.
  virtual void read(const std::string& name, int64_t first, int64_t count, float* out) const = 0;

  bool has(const std::string& name) const { return tensors().contains(name); }
};

/// Of one safetensors file.
std::unique_ptr<TensorSource> open_tensor_file(const std::string& path);
/// Of a folder: model.safetensors, or the files that model.safetensors.index.json lists. Throws
/// StateError naming path and reason: none of them, a tensor that is not where the list says.
std::unique_ptr<TensorSource> open_tensor_folder(const std::string& folder);

/// Bytes an element of the floating-point types that can be read: F32, F16, BF16; else 0.
int float_bytes(const std::string& dtype);
/// `count` numbers of such a type.
void widen(const std::string& dtype, const void* from, int64_t count, float* out);
/// Rounded to the nearest, ties to even. `into` has count * float_bytes bytes.
void narrow(const std::string& dtype, const float* from, int64_t count, void* into);

}  // namespace lockstep::checkpoints
