#include "lockstep/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/kernels/detail/clones.h"
#include "lockstep/kernels/detail/exp.h"
#include "lockstep/kernels/detail/lane_sum.h"
#include "lockstep/kernels/dropout_mask.h"
#include "lockstep/kernels/rounding.h"
#include "lockstep/kernels/span.h"

namespace lockstep::kernels {
namespace {

/// A head's rows, as products take them: fp32, or beside them bf16.
struct Rows {
  float* values;
  uint16_t* rounded;
  const void* operand(OperandType type, int64_t first) const {
    return type == OperandType::bf16 ? static_cast<const void*>(rounded + first)
                                     : static_cast<const void*>(values + first);
  }
};

/// The scratch, cut up. A matrix that products read has room for its rounded twin.
struct Scratch {
  Scratch(const AttentionShape& shape, float* memory) : next_(memory) {
    const int64_t head = shape.sequence * shape.width;
    const int64_t scores = kQueryBlock * shape.sequence;
    q = rows(head);
    k = rows(head);
    v = rows(head);
    d_out = rows(head);
    p = rows(scores);
    ds = rows(scores);
    mask = floats(scores);
    dq = floats(head);
    dk = floats(head);
    dv = floats(head);
    out = floats(head);
  }
  static int64_t size(const AttentionShape& shape) {
    Scratch scratch(shape, nullptr);
    return scratch.taken_;
  }

  Rows q, k, v, d_out, p, ds;
  float *mask, *dq, *dk, *dv, *out;

 private:
  float* floats(int64_t count) {
    const int64_t whole = (count + 15) / 16 * 16;
    float* place = next_;
    if (next_ != nullptr) next_ += whole;
    taken_ += whole;
    return place;
  }
  Rows rows(int64_t count) {
    float* values = floats(count);
    return {values, reinterpret_cast<uint16_t*>(floats((count + 1) / 2))};
  }

  float* next_;
  int64_t taken_ = 0;
};

/// Where the rows of a head lie, sample by sample.
struct Place {
  const AttentionShape& shape;
  int64_t sample;
  int64_t row(int64_t position) const {
    const int64_t s = shape.sequence / shape.slices;
    return (position / s * shape.samples + sample) * s + position % s;
  }
};

LOCKSTEP_CLONES void turn(float* __restrict row, const float* __restrict cos,
                          const float* __restrict sin, float direction, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = row[i], b = row[half + i], s = direction * sin[i];
    row[i] = a * cos[i] - b * s;
    row[half + i] = b * cos[i] + a * s;
  }
}

/// Asks for the row of a head that is wanted some rows later: rows lie too far apart for the
/// processor to see what comes next.
template <bool kToWrite>
[[gnu::always_inline]] inline void ask_for(const Place& place, int64_t position, const float* rows,
                                           int64_t stride) {
  constexpr int64_t kAhead = 12;
  if (position + kAhead >= place.shape.sequence) return;
  const float* row = rows + place.row(position + kAhead) * stride;
  for (int64_t i = 0; i < place.shape.width; i += 16) __builtin_prefetch(row + i, kToWrite ? 1 : 0);
}

/// Brings the rows of a head together, turned if they are queries or keys, and rounded where
/// products take bf16; then fp32 is left out unless it is turned or `keeps` asks for it.
void load(const Place& place, const AttentionOptions& options, const float* from, int64_t stride,
          bool turns, const Rows& into, bool keeps = false) {
  const int64_t K = place.shape.width;
  const bool rounds = options.type == OperandType::bf16;
  const bool turned = turns && options.cos != nullptr;
  for (int64_t p = 0; p < place.shape.sequence; ++p) {
    const float* source = from + place.row(p) * stride;
    ask_for<false>(place, p, from, stride);
    if (turned || keeps || !rounds) {
      float* row = into.values + p * K;
      std::memcpy(row, source, static_cast<size_t>(K) * sizeof(float));
      if (turned) turn(row, options.cos + p * (K / 2), options.sin + p * (K / 2), 1, K / 2);
      source = row;
    }
    if (rounds) to_bf16(into.rounded + p * K, source, K);
  }
}

/// The other way round: gradients of queries and keys are turned back.
void store(const Place& place, const AttentionOptions& options, float* from, bool turns,
           float* into, int64_t stride) {
  const int64_t K = place.shape.width;
  for (int64_t p = 0; p < place.shape.sequence; ++p) {
    float* row = from + p * K;
    ask_for<true>(place, p, into, stride);
    if (turns && options.cos != nullptr) {
      turn(row, options.cos + p * (K / 2), options.sin + p * (K / 2), -1, K / 2);
    }
    std::memcpy(into + place.row(p) * stride, row, static_cast<size_t>(K) * sizeof(float));
  }
}

/// Row i of a block sees keys 0 to first + i. Scores become exponentials, which times shares[i] are
/// probabilities.
LOCKSTEP_CLONES void softmax_rows(float* __restrict scores, float* __restrict log_sums,
                                  float* __restrict shares, int64_t rows, int64_t columns,
                                  int64_t first, float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    float* __restrict row = scores + i * columns;
    const int64_t seen = first + i + 1;
    const float most = detail::lane_max(row, seen) * scale;
    for (int64_t j = 0; j < seen; ++j) row[j] = detail::exp(row[j] * scale - most);
    const float sum = detail::lane_sum(seen, [row](int64_t j) { return row[j]; });
    for (int64_t j = seen; j < columns; ++j) row[j] = 0;
    shares[i] = 1.0F / sum;
    log_sums[i] = most + std::log(sum);
  }
}

/// Scores become probabilities again, and `ds`, which holds do v^T, the gradient of the scores.
LOCKSTEP_CLONES void score_gradient_rows(float* __restrict scores, float* __restrict ds,
                                         const float* __restrict mask,
                                         const float* __restrict log_sums,
                                         const float* __restrict out, const float* __restrict d_out,
                                         int64_t rows, int64_t columns, int64_t first,
                                         int64_t width, float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    float* __restrict p = scores + i * columns;
    float* __restrict d = ds + i * columns;
    const float* m = mask + i * columns;
    const float* o = out + i * width;
    const float* g = d_out + i * width;
    const int64_t seen = first + i + 1;
    const float log_sum = log_sums[i];
    const float along = detail::lane_sum(width, [o, g](int64_t j) { return o[j] * g[j]; });
    for (int64_t j = 0; j < seen; ++j) {
      p[j] = detail::exp(p[j] * scale - log_sum);
      d[j] = p[j] * (d[j] * m[j] - along) * scale;
    }
    for (int64_t j = seen; j < columns; ++j) p[j] = d[j] = 0;
  }
}

LOCKSTEP_CLONES void multiply(float* __restrict into, const float* __restrict by, int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] *= by[i];
}

/// The factors of a block of rows; those of keys behind a row are drawn too: they meet zeros.
void draw_mask(const AttentionShape& shape, const AttentionOptions& options, int64_t sample,
               int64_t head, int64_t first, int64_t rows, int64_t columns, float* mask) {
  const int64_t S = shape.sequence;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = ((options.first_head + head) * S + first + i) * S;
    dropout_mask(mask + i * columns, at, columns, options.keys[sample], options.dropout);
  }
}

/// left [m, k], right [n, k] or [k, n], without gaps.
void product(OperandType type, int64_t m, int64_t n, int64_t k, bool transpose_left,
             const void* left, bool transpose_right, const void* right, float* into,
             bool adds = false) {
  Gemm gemm_of = packed_gemm(type, m, n, k, transpose_left, transpose_right);
  gemm_of.adds = adds;
  gemm(gemm_of, left, right, into);
}

void round_block(OperandType type, const Rows& block, int64_t count) {
  if (type == OperandType::bf16) to_bf16(block.rounded, block.values, count);
}

}  // namespace

int64_t attention_scratch(const AttentionShape& shape) { return Scratch::size(shape); }

int64_t attention_flops(const AttentionShape& shape) {
  int64_t pairs = 0;  // of a query and a key that meet in a product
  for (int64_t r = 0; r < shape.sequence; r += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, shape.sequence - r);
    pairs += rows * (r + rows);
  }
  return 4 * shape.samples * shape.heads * shape.width * pairs;
}

void attention(const AttentionShape& shape, const AttentionOptions& options, const float* in,
               float* out, float* log_sums, float* scratch) {
  const Scratch at(shape, scratch);
  const int64_t S = shape.sequence, K = shape.width, G = shape.heads / shape.kv_heads;
  const OperandType type = options.type;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    const Place place{shape, sample};
    for (int64_t head = 0; head < shape.heads; ++head) {
      if (head % G == 0) {
        const int64_t of_keys = (shape.heads + head / G) * K;
        load(place, options, in + of_keys, shape.row_in(), true, at.k);
        load(place, options, in + of_keys + shape.kv_heads * K, shape.row_in(), false, at.v);
      }
      load(place, options, in + head * K, shape.row_in(), true, at.q);
      for (int64_t r = 0; r < S; r += kQueryBlock) {
        const int64_t m = std::min(kQueryBlock, S - r), n = r + m;
        product(type, m, n, K, false, at.q.operand(type, r * K), true, at.k.operand(type, 0),
                at.p.values);
        float shares[kQueryBlock];
        softmax_rows(at.p.values, log_sums + (sample * shape.heads + head) * S + r, shares, m, n, r,
                     options.scale);
        if (options.dropout > 0) {
          draw_mask(shape, options, sample, head, r, m, n, at.mask);
          multiply(at.p.values, at.mask, m * n);
        }
        round_block(type, at.p, m * n);
        product(type, m, K, n, false, at.p.operand(type, 0), false, at.v.operand(type, 0),
                at.out + r * K);
        scale_rows(at.out + r * K, shares, m, K);
      }
      store(place, options, at.out, false, out + head * K, shape.row_out());
    }
  }
}

void attention_backward(const AttentionShape& shape, const AttentionOptions& options,
                        const float* in, const float* out, const float* log_sums,
                        const float* d_out, float* d_in, float* scratch) {
  Scratch at(shape, scratch);
  const int64_t S = shape.sequence, K = shape.width, G = shape.heads / shape.kv_heads;
  const OperandType type = options.type;
  const Rows out_rows{at.out, nullptr};
  AttentionOptions plain = options;
  plain.type = OperandType::fp32;
  std::fill_n(at.mask, kQueryBlock * S, 1.0F);
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    const Place place{shape, sample};
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t of_keys = (shape.heads + head / G) * K;
      const int64_t of_values = of_keys + shape.kv_heads * K;
      if (head % G == 0) {
        load(place, options, in + of_keys, shape.row_in(), true, at.k);
        load(place, options, in + of_values, shape.row_in(), false, at.v);
        std::fill_n(at.dk, S * K, 0.0F);
        std::fill_n(at.dv, S * K, 0.0F);
      }
      load(place, options, in + head * K, shape.row_in(), true, at.q);
      load(place, options, d_out + head * K, shape.row_out(), false, at.d_out, /*keeps=*/true);
      load(place, plain, out + head * K, shape.row_out(), false, out_rows);
      for (int64_t r = 0; r < S; r += kQueryBlock) {
        const int64_t m = std::min(kQueryBlock, S - r), n = r + m;
        product(type, m, n, K, false, at.q.operand(type, r * K), true, at.k.operand(type, 0),
                at.p.values);
        product(type, m, n, K, false, at.d_out.operand(type, r * K), true, at.v.operand(type, 0),
                at.ds.values);
        if (options.dropout > 0) draw_mask(shape, options, sample, head, r, m, n, at.mask);
        score_gradient_rows(at.p.values, at.ds.values, at.mask,
                            log_sums + (sample * shape.heads + head) * S + r, at.out + r * K,
                            at.d_out.values + r * K, m, n, r, K, options.scale);
        if (options.dropout > 0) multiply(at.p.values, at.mask, m * n);
        round_block(type, at.p, m * n);
        round_block(type, at.ds, m * n);
        product(type, n, K, m, true, at.p.operand(type, 0), false, at.d_out.operand(type, r * K),
                at.dv, /*adds=*/true);
        product(type, m, K, n, false, at.ds.operand(type, 0), false, at.k.operand(type, 0),
                at.dq + r * K);
        product(type, n, K, m, true, at.ds.operand(type, 0), false, at.q.operand(type, r * K),
                at.dk, /*adds=*/true);
      }
      store(place, options, at.dq, true, d_in + head * K, shape.row_in());
      if (head % G == G - 1) {
        store(place, options, at.dk, true, d_in + of_keys, shape.row_in());
        store(place, options, at.dv, false, d_in + of_values, shape.row_in());
      }
    }
  }
}

}  // namespace lockstep::kernels
