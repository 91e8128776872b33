/// The public headers, in the order in which one would read them.
#pragma once

// Joining a job, and talking to the other ranks.
#include "lockstep/comm/process_group.h"
#include "lockstep/worker/init.h"

// A training loop of one's own.
#include "lockstep/train/ddp_options.h"
#include "lockstep/train/distributed_data_parallel.h"
#include "lockstep/train/distributed_sampler.h"
#include "lockstep/train/fully_shard.h"
#include "lockstep/train/sharded.h"

// The same bits on any number of ranks, in a loop of one's own.
#include "lockstep/train/training.h"

// A model as a list of layers, over three axes.
#include "lockstep/parallel/layers.h"
#include "lockstep/train/layer_list.h"

// Normalised layers: over the batches of all ranks.
#include "lockstep/parallel/norm/sync_batch_norm.h"

// Less memory: activations computed again in backward.
#include "lockstep/torch_inside/recompute.h"

// What a rank holds, by kind.
#include "lockstep/memory/account.h"

// Plans: what is decided before a tensor moves.
#include "lockstep/plan/batch_plan.h"
#include "lockstep/plan/buckets.h"
#include "lockstep/plan/mesh.h"
#include "lockstep/plan/shard_layout.h"
#include "lockstep/plan/state_bytes.h"
#include "lockstep/plan/sum_tree.h"

// Models and loops of Lockstep's own, and tasks of yours inside them.
#include "lockstep/models/language_model.h"
#include "lockstep/models/resnet.h"
#include "lockstep/train/task.h"
#include "lockstep/train/trainer.h"
#include "lockstep/worker/worker_main.h"

#include "lockstep/base/error.h"
