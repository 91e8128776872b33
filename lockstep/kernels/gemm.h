/// Matrix products of row-major matrices, through oneDNN.
///
///   into[m, n] = op(left)[m, k] op(right)[k, n]  (+ bias[n])  (+ into)
///
/// Order   oneDNN's, a function of the shape, the operands' type and the instruction set alone: not
///         of addresses, of other products or of the calling thread
/// Holds   a primitive for each shape seen by the thread, at most 1024
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::kernels {

enum class OperandType { fp32, bf16 };  // sums and results are fp32

struct Gemm {
  OperandType type = OperandType::fp32;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_left = false;   // left is [k, m] in memory
  bool transpose_right = false;  // right is [n, k] in memory
  int64_t left_stride = 0;       // elements from a row in memory to the next
  int64_t right_stride = 0;
  int64_t into_stride = 0;
  bool adds = false;  // to what `into` holds
  bool operator==(const Gemm&) const = default;
};

/// Strides of matrices without gaps.
Gemm packed_gemm(OperandType type, int64_t m, int64_t n, int64_t k, bool transpose_left,
                 bool transpose_right);

/// `bias` may be null. Sizes of 0 are allowed: without k the sums are 0.
void gemm(const Gemm& product, const void* left, const void* right, float* into,
          const float* bias = nullptr);

/// Operations of the product: 2 m n k.
constexpr int64_t gemm_flops(const Gemm& product) { return 2 * product.m * product.n * product.k; }

/// Whether this processor, or what ONEDNN_MAX_CPU_ISA leaves of it, has bf16 products.
bool has_bf16_products();

/// "dnnl-2.6.3-avx512_bf16": version, and the instructions that its products use.
std::string gemm_library();

}  // namespace lockstep::kernels
