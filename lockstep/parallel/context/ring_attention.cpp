#include "lockstep/parallel/context/ring_attention.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/planted_fault.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/context/detail/ring_run.h"
#include "lockstep/torch_inside/kept.h"

namespace lockstep::parallel {
namespace {

using base::Fault;
using base::planted;
using plan::GrainPair;
using plan::HalfPair;
using plan::RingStep;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Layer {
  ContextGroup group;
  RingOptions options;
};

/// Queries and what belongs to them lie as [c, 2 halves, n, G h, K].
at::Tensor by_halves(const at::Tensor& x) {
  const int64_t c = x.size(0), n = x.size(1), G = x.size(2), h = x.size(3) / 2, K = x.size(4);
  return x.reshape({c, n, G, 2, h, K})
      .permute({0, 3, 1, 2, 4, 5})
      .contiguous()
      .view({c, 2, n, G * h, K});
}

/// Of the shape of `like`, which by_halves was given.
at::Tensor from_halves(const at::Tensor& x, const at::Tensor& like) {
  const int64_t c = like.size(0), n = like.size(1), G = like.size(2), h = like.size(3) / 2;
  return x.view({c, 2, n, G, h, like.size(4)})
      .permute({0, 2, 3, 1, 4, 5})
      .contiguous()
      .view(like.sizes());
}

/// The matrices of queries and of keys that meet in a block, and what is known of their places.
class Blocks {
 public:
  /// q: by halves and scaled.
  Blocks(const Layer& layer, at::Tensor q, int64_t groups)
      : layer_(layer), q_(std::move(q)), n_(q_.size(2)), groups_(groups), h_(q_.size(3) / groups) {
    mask_ = at::full({h_, h_}, -kInfinity, q_.options()).triu_(1);
  }

  /// A block's part [n, G h, ...] of a tensor of the rank's queries.
  at::Tensor of_query(const at::Tensor& x, GrainPair pair, HalfPair half) const {
    return x[pair.query - layer_.group.place.local.lo][half.query];
  }
  at::Tensor query(GrainPair pair, HalfPair half) const { return of_query(q_, pair, half); }

  at::Tensor scores(const at::Tensor& query, const at::Tensor& key, HalfPair half) const {
    at::Tensor scores = at::bmm(query, key.transpose(1, 2));
    if (half.diagonal) scores.view({n_, groups_, h_, h_}).add_(mask_);
    return scores;
  }

  /// Undefined: nothing is dropped.
  at::Tensor keep(GrainPair pair, HalfPair half) const {
    if (!layer_.options.keep) return {};
    const at::Tensor keep =
        layer_.options.keep(tokens(pair.query, half.query), tokens(pair.key, half.key));
    if (keep.sizes() != at::IntArrayRef({n_, groups_, h_, h_})) {
      throw UsageError(base::str("ring_attention: keep gave ", keep.sizes(), " for a block of ", h_,
                                 " queries and keys. Give [n, G, queries, keys] = [", n_, ", ",
                                 groups_, ", ", h_, ", ", h_, "]."));
    }
    return keep.reshape({n_, groups_ * h_, h_});
  }

 private:
  plan::TokenRange tokens(int grain, int half) const {
    const int grains = layer_.group.place.grains;
    return plan::tokens_of(grain, grains, 2 * grains * h_)[static_cast<size_t>(half)];
  }

  const Layer& layer_;
  at::Tensor q_;
  int64_t n_, groups_, h_;
  at::Tensor mask_;
};

/// The softmax over the keys that have been met so far, of all the rank's queries.
struct Online {
  explicit Online(const at::Tensor& q)
      : out(at::zeros_like(q)),
        top(at::full({q.size(0), 2, q.size(2), q.size(3), 1}, -kInfinity, q.options())),
        sum(at::zeros_like(top)) {}

  /// The scores are used up.
  void meet(const Blocks& blocks, GrainPair pair, HalfPair half, at::Tensor scores,
            const at::Tensor& values) {
    const at::Tensor top_here = blocks.of_query(top, pair, half);
    const at::Tensor higher = at::maximum(top_here, scores.amax(-1, /*keepdim=*/true));
    const at::Tensor rescale = (top_here - higher).exp_();
    top_here.copy_(higher);
    scores.sub_(higher).exp_();
    blocks.of_query(sum, pair, half).mul_(rescale).add_(scores.sum(-1, /*keepdim=*/true));
    const at::Tensor keep = blocks.keep(pair, half);
    if (keep.defined()) scores.mul_(keep);
    blocks.of_query(out, pair, half).mul_(rescale).add_(at::bmm(scores, values));
  }

  at::Tensor out;  // times sum
  at::Tensor top;
  at::Tensor sum;
};

/// What a block adds to the gradients of its keys and values.
struct KeyGradients {
  int half;
  at::Tensor dk, dv;
};

/// Backward of a block: dS = P (dP - rowsum(dO O)), where the result's rows O stand for the sum
/// over all keys.
class BlockGradients {
 public:
  BlockGradients(const Blocks& blocks, at::Tensor out, at::Tensor log_sum, at::Tensor dout)
      : blocks_(blocks),
        out_(std::move(out)),
        log_sum_(std::move(log_sum)),
        dout_(std::move(dout)),
        dq_(at::zeros_like(out_)) {}

  KeyGradients meet(GrainPair pair, HalfPair half, const at::Tensor& key, const at::Tensor& value) {
    const at::Tensor query = blocks_.query(pair, half);
    const at::Tensor dout = blocks_.of_query(dout_, pair, half);
    const at::Tensor delta = (dout * blocks_.of_query(out_, pair, half)).sum(-1, /*keepdim=*/true);
    const at::Tensor shares =
        blocks_.scores(query, key, half).sub_(blocks_.of_query(log_sum_, pair, half)).exp_();
    const at::Tensor keep = blocks_.keep(pair, half);
    const at::Tensor kept = keep.defined() ? shares * keep : shares;
    at::Tensor dscores = at::bmm(dout, value.transpose(1, 2));
    if (keep.defined()) dscores.mul_(keep);
    dscores.sub_(delta).mul_(shares);
    blocks_.of_query(dq_, pair, half).add_(at::bmm(dscores, key));
    return {half.key, at::bmm(dscores.transpose(1, 2), query), at::bmm(kept.transpose(1, 2), dout)};
  }

  /// Of scaled queries.
  const at::Tensor& dq() const { return dq_; }

 private:
  const Blocks& blocks_;
  at::Tensor out_, log_sum_, dout_, dq_;
};

struct RingAttention final : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Layer& layer) {
    const at::Tensor scaled = by_halves(q * layer.options.scale);
    const Blocks blocks(layer, scaled, q.size(2));
    Online online(scaled);
    detail::go_round(
        layer.group, detail::packed(k, v), [&](const RingStep& step, const at::Tensor& run) {
          const bool is_home = step.visitor == plan::context_rank(layer.group.place);
          if (planted(Fault::skipped_visitor) && !is_home) return;
          const int first = layer.group.place.by_rank[static_cast<size_t>(step.visitor)].lo;
          for (const GrainPair pair : step.pairs) {
            for (const HalfPair half : plan::half_pairs(pair)) {
              const detail::RunHalf met = detail::half_of(run, pair.key - first, half.key);
              online.meet(blocks, pair, half,
                          blocks.scores(blocks.query(pair, half), met.keys, half), met.values);
            }
          }
        });
    at::Tensor out = from_halves(online.out.div_(online.sum), q);
    ctx->save_for_backward({q, k, v, out, online.sum.log_().add_(online.top)});
    torch_inside::keep(*ctx, layer);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const Layer& layer = torch_inside::kept<Layer>(*ctx);
    const ContextGroup& group = layer.group;
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const Blocks blocks(layer, by_halves(q * layer.options.scale), q.size(2));
    BlockGradients gradient(blocks, by_halves(saved[3]), saved[4], by_halves(gradients[0]));

    const at::Tensor own = detail::packed(k, v);
    Pending sums(at::zeros_like(own));  // gradients of the keys and values that are here
    size_t moves = group.place.by_rank.size() == 1 ? 0 : group.place.by_rank.size();
    detail::go_round(group, own, [&](const RingStep& step, const at::Tensor& run) {
      const int first = group.place.by_rank[static_cast<size_t>(step.visitor)].lo;
      for (const GrainPair pair : step.pairs) {
        const int64_t key = pair.key - first;
        std::vector<KeyGradients> adds;
        for (const HalfPair half : plan::half_pairs(pair)) {
          const detail::RunHalf met = detail::half_of(run, key, half.key);
          adds.push_back(gradient.meet(pair, half, met.keys, met.values));
        }
        // Only now, so that the sums of the other ranks travel while a whole pair is computed.
        const at::Tensor sum = sums.wait();
        for (const KeyGradients& add : adds) {
          const detail::RunHalf of_half = detail::half_of(sum, key, add.half);
          of_half.keys.add_(add.dk);
          of_half.values.add_(add.dv);
        }
      }
      if (moves > 0) {
        const bool is_home = step.visitor == plan::context_rank(group.place);
        if (planted(Fault::gradients_not_home) && !is_home) sums.wait().zero_();
        sums = detail::pass_on(group, sums.wait(), step.visitor);
        --moves;
      }
    });
    const at::Tensor sum = sums.wait();
    return {from_halves(gradient.dq(), q).mul_(layer.options.scale), detail::unpacked(sum, 0),
            detail::unpacked(sum, 1), at::Tensor()};
  }
};

void check(const ContextGroup& group, const at::Tensor& q, const at::Tensor& k,
           const at::Tensor& v) {
  const auto refuse = [](const auto&... what) {
    throw UsageError(base::str("ring_attention: ", what...));
  };
  const plan::ContextPlace& place = group.place;
  const size_t ranks = group.cp == nullptr ? 1 : static_cast<size_t>(group.cp->size());
  if (place.by_rank.size() != ranks || plan::context_rank(place) >= static_cast<int>(ranks) ||
      (group.cp != nullptr && plan::context_rank(place) != group.cp->rank())) {
    refuse("the place is not this rank's of a group of ", ranks,
           ". Make it with plan::context_place(grains, group.size(), group.rank()).");
  }
  const int64_t c = place.local.size();
  if (q.dim() != 5 || q.size(0) != c || q.size(3) < 2 || q.size(3) % 2 != 0) {
    refuse("q is ", q.sizes(), ". Give [", c,
           " grains, n, G, s, K] with an even number s of tokens a grain.");
  }
  const std::vector<int64_t> keys = {c, q.size(1), q.size(3), q.size(4)};
  if (k.sizes() != at::IntArrayRef(keys) || v.sizes() != at::IntArrayRef(keys)) {
    refuse("k is ", k.sizes(), " and v is ", v.sizes(), " for q of ", q.sizes(),
           ". Give both as [c, n, s, K] = ", at::IntArrayRef(keys), ".");
  }
  for (const at::Tensor& x : {q, k, v}) {
    if (x.scalar_type() != at::kFloat) {
      refuse("of ", x.scalar_type(),
             ". Sums over blocks are taken in float32: convert q, k and v.");
    }
  }
}

}  // namespace

at::Tensor ring_attention(const ContextGroup& group, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const RingOptions& options) {
  check(group, q, k, v);
  return RingAttention::apply(q, k, v, Layer{group, options});
}

}  // namespace lockstep::parallel
