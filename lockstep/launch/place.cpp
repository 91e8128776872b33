#include "lockstep/launch/place.h"

#include <charconv>
#include <cstdlib>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::launch {
namespace {

constexpr int kMostRanks = 1 << 20;

EnvironmentError refused(const std::string& name, const std::string& value,
                         const std::string& why) {
  return EnvironmentError(base::str("this process cannot tell which rank it is: ", name, "=\"",
                                    value, "\" ", why,
                                    ".\n  Start it with `lockstep run`, torchrun, mpirun or srun; "
                                    "or unset ",
                                    name, " to run it alone."));
}

/// Reads numbers, and remembers which variable said what for the messages.
class Reader {
 public:
  Reader(const Lookup& lookup, Place& place) : lookup_(lookup), place_(place) {}

  std::string text(const std::string& name) const { return lookup_(name).value_or(""); }

  int number(const std::string& name, int lowest, int highest) const {
    const std::string value = text(name);
    int number = 0;
    const char* end = value.data() + value.size();
    const auto result = std::from_chars(value.data(), end, number);
    if (value.empty() && !lookup_(name)) {
      throw EnvironmentError(base::str(name, " is not set, though ", place_.rank_variable, "=\"",
                                       text(place_.rank_variable), "\" is.\n  ",
                                       name_of(place_.launcher), " sets both; unset ",
                                       place_.rank_variable, " to run this process alone."));
    }
    if (result.ec != std::errc() || result.ptr != end) throw refused(name, value, "is no number");
    if (number < lowest || number > highest) {
      throw refused(name, value, base::str("is not between ", lowest, " and ", highest));
    }
    return number;
  }

  int number_or(const std::string& name, int lowest, int highest, int otherwise) const {
    return lookup_(name) ? number(name, lowest, highest) : otherwise;
  }

  void ranks(const std::string& rank, const std::string& size) {
    place_.rank_variable = rank;
    place_.world_size = number(size, 1, kMostRanks);
    place_.rank = number(rank, 0, kMostRanks);
    if (place_.rank >= place_.world_size) {
      throw refused(rank, text(rank),
                    base::str("is not below ", size, "=\"", place_.world_size, "\""));
    }
  }

  /// A launcher that says neither has all ranks on this host.
  void local_ranks(const std::string& rank, const std::string& size) {
    place_.local_rank = place_.rank;
    place_.local_size = place_.world_size;
    if (!lookup_(rank) && !lookup_(size)) return;
    place_.local_size = number(size, 1, kMostRanks);
    place_.local_rank = number(rank, 0, kMostRanks);
    if (place_.local_size > place_.world_size) {
      throw refused(size, text(size), base::str("is more than the world size ", place_.world_size));
    }
    check_local(rank, size);
  }

  void check_local(const std::string& rank, const std::string& size) const {
    if (place_.local_rank >= place_.local_size) {
      throw refused(
          rank, text(rank),
          base::str("is not below the ranks of this host, ", size, "=\"", text(size), "\""));
    }
    const bool whole_world = place_.local_size == place_.world_size;
    if (place_.local_rank > place_.rank || (whole_world && place_.local_rank != place_.rank)) {
      throw refused(rank, text(rank),
                    base::str("does not fit ", place_.rank_variable, "=\"", place_.rank, "\" with ",
                              place_.local_size, " of ", place_.world_size, " ranks on this host"));
    }
  }

  void meeting_place() {
    place_.host = text("MASTER_ADDR");
    place_.port = number_or("MASTER_PORT", 0, 65535, 0);
  }

 private:
  const Lookup& lookup_;
  Place& place_;
};

bool is_set(const Lookup& lookup, const std::string& name) { return lookup(name).has_value(); }

void read_lockstep(Reader& reader, Place& place) {
  const bool one_process = reader.text("LOCKSTEP_ENGINE") == "threads";
  if (one_process) {
    place.rank_variable = "LOCKSTEP_WORLD_SIZE";
    place.world_size = place.local_size = reader.number("LOCKSTEP_WORLD_SIZE", 1, kMostRanks);
  } else {
    reader.ranks("LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE");
    reader.local_ranks("LOCKSTEP_LOCAL_RANK", "LOCKSTEP_LOCAL_SIZE");
  }
  place.node_rank = reader.number_or("LOCKSTEP_NODE_RANK", 0, kMostRanks, 0);
  place.restart_count = reader.number_or("LOCKSTEP_RESTART_COUNT", 0, kMostRanks, 0);
  place.job_id = reader.text("LOCKSTEP_JOB_ID");
}

void read_torchrun(Reader& reader, Place& place) {
  reader.ranks("RANK", "WORLD_SIZE");
  reader.local_ranks("LOCAL_RANK", "LOCAL_WORLD_SIZE");
  place.node_rank = reader.number_or("GROUP_RANK", 0, kMostRanks, -1);
  place.restart_count = reader.number_or("TORCHELASTIC_RESTART_COUNT", 0, kMostRanks, 0);
  place.job_id = reader.text("TORCHELASTIC_RUN_ID");
}

void read_open_mpi(Reader& reader, Place& place) {
  reader.ranks("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  // Not OMPI_COMM_WORLD_NODE_RANK: that counts the ranks of all jobs on this node.
  reader.local_ranks("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  place.node_rank = -1;
  place.job_id = reader.text("PMIX_NAMESPACE");
}

void read_mpich(Reader& reader, Place& place) {
  reader.ranks("PMI_RANK", "PMI_SIZE");
  reader.local_ranks("MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  place.node_rank = -1;
}

/// The first of `names` that is set; the last if none is.
std::string first_set(const Lookup& lookup, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (is_set(lookup, name)) return name;
  }
  return names.back();
}

std::string slurm_size_variable(const Lookup& lookup) {
  return first_set(lookup, {"SLURM_STEP_NUM_TASKS", "SLURM_NPROCS", "SLURM_NTASKS"});
}

void read_slurm(const Lookup& lookup, Reader& reader, Place& place) {
  reader.ranks("SLURM_PROCID", slurm_size_variable(lookup));
  place.node_rank = reader.number_or("SLURM_NODEID", 0, kMostRanks, 0);
  place.local_rank = reader.number_or("SLURM_LOCALID", 0, kMostRanks, place.rank);
  place.local_size = place.world_size;
  const std::string counts_name =
      first_set(lookup, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (is_set(lookup, counts_name)) {
    const std::string text = reader.text(counts_name);
    const std::vector<int> counts = slurm_counts(counts_name, text);
    if (std::accumulate(counts.begin(), counts.end(), int64_t{0}) != place.world_size) {
      throw refused(counts_name, text, base::str("does not sum to ", place.world_size, " tasks"));
    }
    if (place.node_rank >= static_cast<int>(counts.size())) {
      throw refused("SLURM_NODEID", reader.text("SLURM_NODEID"),
                    base::str("is not among the nodes of ", counts_name, "=\"", text, "\""));
    }
    place.local_size = counts[place.node_rank];
  }
  // The tasks of a node may be dealt out in any order (srun --distribution), but a world on one
  // node has its local ranks in order.
  reader.check_local("SLURM_LOCALID", counts_name);
  const std::string hosts = first_set(lookup, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (place.host.empty() && is_set(lookup, hosts)) {
    place.host = slurm_hosts(hosts, reader.text(hosts)).front();
  }
  place.restart_count = reader.number_or("SLURM_RESTART_COUNT", 0, kMostRanks, 0);
  place.job_id = reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID");
}

bool in_slurm_step(const Lookup& lookup, const Reader& reader) {
  if (!is_set(lookup, "SLURM_PROCID") || !is_set(lookup, "SLURM_STEP_ID")) return false;
  const std::string size = slurm_size_variable(lookup);
  return is_set(lookup, size) && reader.number(size, 1, kMostRanks) > 1;
}

}  // namespace

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::lockstep:
      return "lockstep";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "Open MPI";
    case Launcher::mpich:
      return "MPICH";
    case Launcher::slurm:
      return "Slurm";
    case Launcher::none:
      break;
  }
  return "no launcher";
}

std::optional<std::string> own_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Place place_from(const Lookup& lookup) {
  Place place;
  Reader reader(lookup, place);
  if (is_set(lookup, "LOCKSTEP_WORLD_SIZE") || is_set(lookup, "LOCKSTEP_RANK")) {
    place.launcher = Launcher::lockstep;
    reader.meeting_place();
    read_lockstep(reader, place);
  } else if (is_set(lookup, "RANK")) {
    place.launcher = Launcher::torchrun;
    reader.meeting_place();
    read_torchrun(reader, place);
  } else if (is_set(lookup, "OMPI_COMM_WORLD_RANK")) {
    place.launcher = Launcher::open_mpi;
    reader.meeting_place();
    read_open_mpi(reader, place);
  } else if (is_set(lookup, "PMI_RANK") && is_set(lookup, "MPI_LOCALNRANKS")) {
    place.launcher = Launcher::mpich;
    reader.meeting_place();
    read_mpich(reader, place);
  } else if (in_slurm_step(lookup, reader)) {
    place.launcher = Launcher::slurm;
    reader.meeting_place();
    read_slurm(lookup, reader, place);
  }
  return place;
}

}  // namespace lockstep::launch
