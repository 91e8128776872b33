/// Bytes of activations that one micro-batch of the decoder holds: what its graph keeps between
/// forward and backward, and the most that is alive at any moment of the two.
///
///   kept of a block, numerics.kernels = fused   fp32         bf16         fp16
///     norms, attention, gelu, residual          8 ND + NF    6 ND + NF    6 ND + NF
///     of each token, and of each of its heads   4 N + NH     the same     the same
///     operands of linear layers besides         NF           3 ND + NF    3 ND + NF
///
///   kept of a block, numerics.kernels = aten    none         selective
///     norms, linear layers, residual            8 ND + 2 NF + 4 N, both
///     softmax of attention, and its dropout     P, or 2 P    nothing
///
/// and with recompute = block its input, ND, and nothing else. N = batch * sequence, D width, H
/// heads, F ffn, P = N H sequence; the second figure where there is dropout, of which no mask is
/// kept. All are fp32 but the operands in bf16, of 2 bytes. The head keeps a matrix of logits, N
/// vocab; by the fused kernels, but in fp16, the gradients of its input and weight instead.
///
/// The peak follows every operator, forward and backward: with recompute it is what is kept, the
/// inside of one block (or of one attention), and its gradients. The gradient of a weight counts
/// from where it is made to where it has been added up; scratch counts; the loss of each token has
/// the same gradient, as in training.
///
/// Source  Korthikanti et al. 2022, arXiv:2205.05198, section 4
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/plan/compute_type.h"

namespace lockstep::plan {

struct TrainConfig;

/// What a model computes again in backward instead of keeping it.
enum class Recompute {
  none,
  selective,  // the core of attention: scores, softmax, dropout, weighted sum
  block,      // all of a block but its input
};

/// Of a `memory.recompute` that its key has checked.
Recompute recompute_of(const std::string& setting);

struct DecoderShape {
  int64_t batch = 0;     // sequences of a micro-batch
  int64_t sequence = 0;  // tokens
  int64_t width = 0;
  int64_t heads = 0;
  int64_t ffn = 0;
  int64_t layers = 0;
  int64_t vocab = 0;
  bool dropout = false;
  bool bias = true;
  bool fused = false;                       // Lockstep's kernels, or LibTorch's, which have
  ComputeType compute = ComputeType::fp32;  // fp32 alone
};

/// Of a gpt2, one micro-batch, all layers.
DecoderShape decoder_shape_of(const TrainConfig& config);

struct ActivationBytes {
  int64_t kept = 0;  // between forward and backward
  int64_t peak = 0;  // at the worst moment
};

/// Without the token ids and the causal mask: they are there before. The fused attention keeps
/// nothing that `selective` would leave out: they do not go together.
ActivationBytes decoder_activation_bytes(const DecoderShape& shape, Recompute recompute);

}  // namespace lockstep::plan
