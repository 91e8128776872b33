/// A language model's head and its cross-entropy in one: the loss of each token, without a matrix
/// of all tokens' logits.
///
/// Holds   the gradients of input and weight, which forward makes while a block's logits are there;
///         so there is no product to repeat. Backward scales them; only if its gradient is not the
///         same for all tokens that count, it computes them again
/// Source  kernels/token_loss.h;  docs/concepts/kernels.md
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "lockstep/fused/product.h"

namespace lockstep::fused {

/// Takes a gradient that is not to go the graph's way.
using GradientSink = std::function<void(const at::Tensor& gradient)>;

/// [rows] losses in nats, fp32.
///
/// x        [..., D] float32
/// weight   (V, D): logits are x weight^T
/// targets  as many as rows, int64, in [0, V); below 0: the token does not count
/// sink     given: backward hands it the weight's gradient, which is no part of the graph then
/// throws   UsageError: a target behind the vocabulary
at::Tensor token_losses(const Arithmetic& arithmetic, const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& targets, const GradientSink& sink = {});

// ---- for a head over several ranks

/// `targets` as a flat tensor. Throws UsageError: one of them is `vocab` or more.
at::Tensor checked_targets(const at::Tensor& targets, int64_t vocab);

/// Whether all tokens that count have the same gradient, which `factor` becomes; 0 if none counts.
bool uniform_gradient(const at::Tensor& gradient, const at::Tensor& targets, float& factor);

}  // namespace lockstep::fused
