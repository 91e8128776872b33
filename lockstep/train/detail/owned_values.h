/// The masters that a rank owns, as one run of numbers: piece after piece.
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/state/param_store.h"

namespace lockstep::detail {

inline int64_t owned_numel(const state::ParamStore& params) {
  int64_t numel = 0;
  for (const plan::Piece& piece : params.pieces()) numel += piece.size();
  return numel;
}

/// `see` gets each piece's master and where the piece begins in the run.
inline void for_each_owned(
    state::ParamStore& params,
    const std::function<void(float* master, int64_t at, int64_t count)>& see) {
  int64_t at = 0;
  for (const plan::Piece& piece : params.pieces()) {
    see(params.master(piece), at, piece.size());
    at += piece.size();
  }
}

}  // namespace lockstep::detail
