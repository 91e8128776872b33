/// Bytes of activations that one micro-batch of the decoder holds: what its graph keeps between
/// forward and backward, and the most that is alive at any moment of the two.
///
///   kept of a block, in elements          none                  selective        block
///     norms, linear layers, residual      8 ND + 2 NF + 4 N     the same         ND, its input
///     softmax and dropout of attention    P, or 3 P             nothing          nothing
///     dropout of the branches             0, or 2 ND            the same         nothing
///
/// with N = batch * sequence, D width, F ffn, P = batch * heads * sequence^2; the second figure
/// where there is dropout. Activations are fp32. The peak follows every operator, forward and
/// backward: with recompute it is what is kept, the inside of one block (or of one attention), and
/// its gradients. The gradient of a weight counts from where autograd makes it to where it has been
/// added up.
///
/// Source  Korthikanti et al. 2022, arXiv:2205.05198, section 4
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::plan {

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
};

struct ActivationBytes {
  int64_t kept = 0;  // between forward and backward
  int64_t peak = 0;  // at the worst moment
};

/// Without the token ids and the causal mask: they are there before.
ActivationBytes decoder_activation_bytes(const DecoderShape& shape, Recompute recompute);

}  // namespace lockstep::plan
