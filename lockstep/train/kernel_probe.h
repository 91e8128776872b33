/// Do all ranks compute alike? Each runs its own kernels on a fixed input at start; the group
/// compares the digests. Unlike processors, library versions or settings are refused before the
/// first step, because with them equal bits on every layout cannot hold.
#pragma once

#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/plan/compute_type.h"
#include "lockstep/plan/train_config.h"

namespace lockstep {

/// A digest over products of a small, a middle and a large shape, layer norm and its backward,
/// exp, gelu, softmax and a sum, of LibTorch and of oneDNN.
std::string kernel_fingerprint();

/// "avx2", "avx512"...: what LibTorch's own kernels were told to use.
std::string instruction_set();

/// "aten-1.13.1-SkylakeX", with what BLAS uses; with Lockstep's kernels before it
/// "fused-1+dnnl-2.6.3-avx512_bf16+".
std::string kernel_set(bool fused);
/// The one of the two that a run's model has: families without kernels of their own have
/// LibTorch's.
std::string kernel_set(const plan::TrainConfig& config);

/// Throws EnvironmentError where the processor has no products in the run's compute type.
void require_products(const plan::TrainConfig& config);

/// Throws UsageError on every rank if fingerprints differ, naming the ranks and the setting that
/// makes them alike.
void require_alike(ProcessGroup& world);

/// The rate of a large matrix product on this rank in the run's compute type, in flop/s, by the
/// faster of oneDNN and LibTorch: the base of the utilisation shown.
double measure_gemm_peak(plan::ComputeType compute);

}  // namespace lockstep
