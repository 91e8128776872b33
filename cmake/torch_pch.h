// What most sources that touch LibTorch include; compiled once (cmake/LockstepTargets.cmake).
#pragma once
#include <ATen/core/ivalue.h>

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>
