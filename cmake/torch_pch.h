// What most sources that touch LibTorch include; compiled once (cmake/LockstepTargets.cmake). Not
// <torch/torch.h>: every source would pay for what it leaves to be instantiated.
#pragma once
#include <ATen/core/ivalue.h>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>
