/// Rows of tables, gathered and scattered.
///
/// Order   a row of a gradient is summed over its tokens as they stand, by one owner; a position's
///         over the samples. The first term of a position is a copy
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// into[t] = table[ids[t]] + positions[t % sequence] of `tokens` rows of `width` floats;
/// `positions` null: none is added. Ids are rows of the table: callers check them.
void embedding(float* into, const int64_t* ids, int64_t tokens, const float* table,
               const float* positions, int64_t sequence, int64_t width);

/// d_table[ids[t]] += dx[t], tokens ascending.
void embedding_backward(float* d_table, const int64_t* ids, int64_t tokens, const float* dx,
                        int64_t width);

/// d_positions[s] = the sum of dx[b * sequence + s] over b, ascending from 0. No sample: zeros.
void positions_backward(float* d_positions, const float* dx, int64_t samples, int64_t sequence,
                        int64_t width);

}  // namespace lockstep::kernels
