#include "lockstep/cli/joined.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/launch/region_handover.h"

namespace lockstep::cli {
namespace {

using std::chrono::milliseconds;

// Ranks that were started together come together: who has not by then is not told of a refusal.
constexpr milliseconds kTimeToRefuse{5000};

/// The region that a Lockstep launcher has made for these ranks, or a new one.
std::shared_ptr<net::Region> region_for(const launch::Place& place) {
  const auto inherited = launch::own_variable("LOCKSTEP_REGION_FD");
  if (place.launcher == launch::Launcher::lockstep && inherited) {
    return net::Region::attach(std::atoi(inherited->c_str()));
  }
  return net::Region::create(place.world_size);
}

launch::Share share_of(const launch::Place& place, const launch::Received& received) {
  launch::Share share;
  share.first_rank = place.rank;
  share.world_size = place.world_size;
  share.first_local_rank = place.local_rank;
  share.local_size = place.local_size;
  share.job_id = place.job_id;
  share.oversubscribed = received.oversubscribed;
  share.region = received.region;
  return share;
}

}  // namespace

std::optional<launch::Place> joined_place() {
  launch::Place place = launch::place_from(launch::own_variable);
  if (place.world_size == 1 || launch::own_variable("LOCKSTEP_ENGINE") == "threads")
    return std::nullopt;
  return place;
}

launch::Share start_joined(const launch::Place& place, const JoinedRun& run) {
  const auto absolute = [](const std::string& folder) {
    return folder.empty() ? "" : std::filesystem::absolute(folder).string();
  };
  const nlohmann::json message = {{"folder", absolute(run.folder)},
                                  {"logs", absolute(run.logs)},
                                  {"worker", run.worker},
                                  {"engine", run.engine},
                                  {"timeout_s", run.timeout_s}};
  const auto timeout = milliseconds(std::llround(run.timeout_s * 1000));
  return share_of(place, launch::hand_out(launch::handover_options(place, timeout),
                                          region_for(place), message.dump()));
}

void refuse_joined(const launch::Place& place, const std::string& message, int exit_code) {
  launch::hand_out_failure(launch::handover_options(place, kTimeToRefuse), message, exit_code);
}

launch::Share follow_joined(const launch::Place& place, JoinedRun& run) {
  const auto timeout = milliseconds(std::llround(run.timeout_s * 1000));
  const launch::Received received = launch::take_over(launch::handover_options(place, timeout));
  const auto message = nlohmann::json::parse(received.message, nullptr, /*allow_exceptions=*/false);
  try {
    run = {.folder = message.at("folder").get<std::string>(),
           .logs = message.at("logs").get<std::string>(),
           .worker = message.at("worker").get<std::string>(),
           .engine = message.at("engine").get<std::string>(),
           .timeout_s = message.at("timeout_s").get<double>()};
  } catch (const nlohmann::json::exception&) {
    throw CommError("local rank 0 runs another program: not `lockstep train`.");
  }
  return share_of(place, received);
}

}  // namespace lockstep::cli
