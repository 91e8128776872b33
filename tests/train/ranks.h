/// Runs a test's body on ranks that are threads, each with the world as a shared process group.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "tests/comm/on_ranks.h"

namespace lockstep::test {

using World = std::shared_ptr<ProcessGroup>;

/// How the body leaves the group.
enum class Group { in_order, aborted };

inline void on_worlds(std::initializer_list<int> sizes,
                      const std::function<void(const World&)>& body, Group left = Group::in_order) {
  // Made by its first user, behind a lock that thread sanitizer does not see in LibTorch's library.
  at::globalContext().defaultGenerator(at::kCPU);
  for (const int size : sizes) {
    SCOPED_TRACE(base::str(size, " ranks"));
    net::run_on_threads(
        size,
        [&](const std::shared_ptr<net::Group>& group) {
          const World world = std::make_shared<ProcessGroup>(group);
          body(world);
          // Peers may still read this rank's buckets.
          if (left == Group::in_order) world->barrier();
        },
        options());
  }
}

}  // namespace lockstep::test
