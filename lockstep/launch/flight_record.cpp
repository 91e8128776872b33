#include "lockstep/launch/flight_record.h"

#include <fstream>
#include <map>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/net/watchdog.h"

namespace lockstep::launch {

std::string flight_record(const net::Region& region, size_t most_operations) {
  std::string record;
  for (int rank = 0; rank < region.ranks(); ++rank) {
    const net::RankStatus status = region.status(rank);
    if (status.pid == 0) continue;
    record += base::str("rank ", rank, place_text(status), ":\n");
    std::vector<std::string> operations = region.recent_operations(rank);
    if (operations.size() > most_operations) {
      operations.erase(operations.begin(),
                       operations.end() - static_cast<std::ptrdiff_t>(most_operations));
    }
    for (const std::string& operation : operations) record += "  " + operation + "\n";
    if (operations.empty()) record += "  none\n";
    for (const std::string& call : region.pending_calls(rank)) {
      record += "  waits in " + call + "\n";
    }
  }
  return record;
}

std::string write_flight_record(const net::Region& region, const std::string& folder) {
  const std::string path = folder + "/last_operations.txt";
  std::ofstream file(path, std::ios::binary);
  const std::string record = flight_record(region);
  file << (record.empty() ? "No rank has joined the others.\n" : record);
  file.close();
  return file ? path : "";
}

std::string waits_text(const net::Region& region) {
  std::map<std::string, std::vector<int>> waiting;  // by call, without how long
  for (int rank = 0; rank < region.ranks(); ++rank) {
    for (const std::string& call : region.pending_calls(rank)) {
      waiting[call.substr(0, call.find(", for "))].push_back(rank);
    }
  }
  std::string text;
  for (const auto& [call, ranks] : waiting) {
    std::string who = net::ranks_text(ranks);
    who.front() = 'R';
    text += base::str(text.empty() ? "" : "\n", who, ranks.size() == 1 ? " waits" : " wait", " in ",
                      call, ".");
  }
  return text;
}

}  // namespace lockstep::launch
