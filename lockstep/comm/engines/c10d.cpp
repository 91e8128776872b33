#include "lockstep/comm/engines/c10d.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/engines/c10d_transport.h"
#include "lockstep/comm/engines/exchange_store.h"
#include "lockstep/comm/engines/no_sigpipe.h"

// LibTorch says by the macro that it has Gloo; Gloo's headers are a package of their own.
#if defined(USE_C10D_GLOO) && __has_include(<gloo/context.h>)
#define LOCKSTEP_HAS_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace lockstep {
namespace {

#ifdef LOCKSTEP_HAS_GLOO

constexpr const char* kAddress = "127.0.0.1";

class GlooEngine final : public net::MessageEngine {
 public:
  explicit GlooEngine(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  const char* name() const override { return "gloo"; }

  std::unique_ptr<net::Transport> connect(const std::vector<int>& members, int rank, int,
                                          const net::Exchange& exchange) override {
    using c10d::ProcessGroupGloo;
    const NoSigpipe guard;  // the device's thread writes too
    const auto options = ProcessGroupGloo::Options::create(timeout_);
    options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(kAddress));
    options->threads = 0;  // they run its collectives; messages are the device's
    return std::make_unique<C10dTransport>(
        name(),
        c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<ExchangeStore>(exchange), rank,
                                              static_cast<int>(members.size()), options));
  }

 private:
  const std::chrono::milliseconds timeout_;
};

#endif

}  // namespace

std::shared_ptr<net::MessageEngine> make_gloo_engine(
    [[maybe_unused]] std::chrono::milliseconds timeout) {
#ifdef LOCKSTEP_HAS_GLOO
  return std::make_shared<GlooEngine>(timeout);
#else
  throw EnvironmentError(
      "engine gloo: this Lockstep was built without Gloo.\n  It needs a LibTorch that has it and "
      "Gloo's headers: install libgloo-dev and build again.");
#endif
}

}  // namespace lockstep
