/// The twin of a run: the same layout and the same kinds of layers with as few numbers as let every
/// part of the layout act. What holds for its bits in a layout is what holds for the run's.
///
///   model    as many pieces as the pipeline has, 1 or 2 layers each (uneven where the run's are);
///            1 or 2 heads a tensor grain; sizes that divide by the grains and by little else, and
///            a vocabulary that does not divide by them
///   batch    the run's leaves, at most 2 micro-batches each, of 2 samples
///   optim    the run's decays; a clip that acts, steps that move every parameter
///   kept     family, tied, bias, dropout, parallel.*, recompute, offload, engine, algorithm, seed
///
/// Dropout stays what it is, also 0: whoever wants it verified gives the twin some.
#pragma once

#include "lockstep/plan/train_config.h"

namespace lockstep::plan {

/// `config` passes check(config, ranks), then so does its twin. Data and folders are the caller's
/// to set. Throws UsageError for a family of one's own: only its program knows what it is made of;
/// and for a residual network.
TrainConfig twin_of(const TrainConfig& config, int ranks);

/// The same run on one rank: the same identity and data, nothing divided, offloaded or computed
/// again.
TrainConfig alone_of(const TrainConfig& twin);

}  // namespace lockstep::plan
