#include "lockstep/worker/init.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/worker/environment.h"
#include "lockstep/worker/message_engine.h"
#include "lockstep/worker/rank_signals.h"

namespace lockstep {

struct World::Membership {
  explicit Membership(std::shared_ptr<net::Endpoint> endpoint) : endpoint(std::move(endpoint)) {}

  ~Membership() {
    if (std::uncaught_exceptions() == 0) {
      endpoint->finish();
    } else {
      endpoint->abort(base::str("rank ", endpoint->rank(), " left its loop with an exception"));
    }
  }

  std::shared_ptr<net::Endpoint> endpoint;
};

namespace {

// A terminate handler has no argument. Weak: a world that is gone has nobody to tell.
std::weak_ptr<net::Endpoint>& endpoint_of_process() {
  static std::weak_ptr<net::Endpoint> endpoint;
  return endpoint;
}

/// Tells launcher and peers what the exception that nobody caught says; exits with its code.
[[noreturn]] void report_and_exit(const std::string& message, int exit_code) {
  if (const auto endpoint = endpoint_of_process().lock()) endpoint->fail(message, exit_code);
  std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& error) {
    report_and_exit(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    report_and_exit(error.what(), 1);
  } catch (...) {
    report_and_exit("an exception that is no std::exception left main.", 1);
  }
  std::abort();  // std::terminate without an exception: a thread that was not joined
}

}  // namespace

World::World(std::shared_ptr<Membership> membership)
    : membership_(std::move(membership)),
      group_(std::make_shared<ProcessGroup>(membership_->endpoint->world())) {}

net::Endpoint& World::endpoint() const { return *membership_->endpoint; }

World init(int argc, char** argv) {
  static std::atomic<bool> called{false};
  if (called.exchange(true)) throw UsageError("lockstep::init was called twice in one process.");
  worker::Environment environment = worker::read_environment();
  environment.endpoint.engine = worker::message_engine(environment);
  if (environment.world_size > 1) at::set_num_threads(1);
  worker::dump_on_request();
  std::shared_ptr<net::Endpoint> endpoint = worker::join(environment);
  endpoint_of_process() = endpoint;
  std::set_terminate(on_terminate);
  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename() : "";
  endpoint->set_status(-1, "running", program);
  return World(std::make_shared<World::Membership>(std::move(endpoint)));
}

}  // namespace lockstep
