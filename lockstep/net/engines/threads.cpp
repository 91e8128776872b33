// The threads engine: every rank a thread of this process, over a region of anonymous memory.
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/net/world.h"

namespace lockstep::net {

namespace {

/// Possibly: a group that goes with work under way ends its peers before its own rank's error, the
/// cause, has left the body.
bool is_echo(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const CommError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void run_on_threads(int ranks, const std::function<void(const std::shared_ptr<Group>&)>& body,
                    const EndpointOptions& options) {
  const auto region = Region::in_process(ranks);
  std::mutex mutex;  // guards first_failure
  std::exception_ptr first_failure;
  const auto run_rank = [&](int rank) {
    pthread_setname_np(pthread_self(), base::str("ls-rank-", rank).c_str());
    std::shared_ptr<Endpoint> endpoint;
    const auto failed = [&](const std::string& message, int exit_code) {
      {
        // Noted before the others are told, so that no echo can come first.
        const std::lock_guard lock(mutex);
        if (!first_failure || (is_echo(first_failure) && !is_echo(std::current_exception()))) {
          first_failure = std::current_exception();
        }
      }
      if (endpoint) {
        endpoint->fail(message, exit_code);
      } else {
        region->abort(base::str("rank ", rank, " failed: ", message));
      }
    };
    try {
      endpoint = Endpoint::join(region, rank, /*direct_memory=*/true, options);
      body(endpoint->world());
      endpoint->finish();
    } catch (const Error& error) {
      failed(error.what(), error.exit_code());
    } catch (const std::exception& error) {
      failed(error.what(), 1);
    } catch (...) {
      failed("an exception that is no std::exception", 1);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  }
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace lockstep::net
