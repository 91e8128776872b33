// The MPI engine's plug-in: compiled once for each MPI, loaded by engines/mpi.cpp.
//
// Each group has a communicator of its own. Messages are non-blocking; whoever waits tests, and
// naps in between, so that ranks which share a core leave it to each other. Nothing of Lockstep's
// libraries is linked: errors leave as std::runtime_error.
#define OMPI_SKIP_MPICXX 1  // the C++ bindings that MPI has given up
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <list>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/net/transport.h"

namespace {

using lockstep::net::ControlChannel;
using lockstep::net::Exchange;
using lockstep::net::MessageEngine;
using lockstep::net::Transport;

constexpr int kTag = 0;
// Of a message: counts are ints, and each that is complete shows that data still move.
constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr std::chrono::microseconds kNap{100};

void require(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(call) + ": " + text);
}

bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {}
  ~MpiTransport() override {
    // Open requests would make it wait for peers that may be gone.
    if (requests_.empty() && !is_finalized()) MPI_Comm_free(&comm_);
  }

  void send(int peer, const void* data, int64_t bytes) override {
    for (int64_t at = 0; at < bytes; at += kMostBytes) {
      MPI_Request& request = start(peer);
      require(MPI_Isend(static_cast<const char*>(data) + at, piece(bytes - at), MPI_BYTE, peer,
                        kTag, comm_, &request),
              "MPI_Isend");
    }
  }

  void receive(int peer, void* data, int64_t bytes) override {
    for (int64_t at = 0; at < bytes; at += kMostBytes) {
      MPI_Request& request = start(peer);
      parts_.back().receives = true;
      require(MPI_Irecv(static_cast<char*>(data) + at, piece(bytes - at), MPI_BYTE, peer, kTag,
                        comm_, &request),
              "MPI_Irecv");
    }
  }

  bool progress() override {
    if (requests_.empty()) return true;
    done_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    require(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                         statuses_.data()),
            "MPI_Testsome");
    for (int i = 0; i < count; ++i) {
      Part& part = parts_[static_cast<size_t>(done_[static_cast<size_t>(i)])];
      part.open = false;
      ++completions_;
      if (!part.receives) continue;
      int bytes = 0;
      MPI_Get_count(&statuses_[static_cast<size_t>(i)], MPI_BYTE, &bytes);
      bytes_received_ += bytes;
    }
    const auto is_open = [](const Part& part) { return part.open; };
    if (std::any_of(parts_.begin(), parts_.end(), is_open)) return false;
    requests_.clear();
    parts_.clear();
    return true;
  }

  bool awaits(int peer) const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [peer](const Part& part) { return part.open && part.peer == peer; });
  }

  void nap() override { std::this_thread::sleep_for(kNap); }

 private:
  struct Part {
    int peer;
    bool receives;
    bool open;
  };

  static int piece(int64_t left) { return static_cast<int>(std::min(left, kMostBytes)); }

  MPI_Request& start(int peer) {
    parts_.push_back({peer, false, true});
    return requests_.emplace_back(MPI_REQUEST_NULL);
  }

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;  // of the requests, one each
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

class MpiControl final : public ControlChannel {
 public:
  explicit MpiControl(MPI_Comm comm) : comm_(comm) {}
  ~MpiControl() override {
    if (sent_.empty() && !is_finalized()) MPI_Comm_free(&comm_);
  }

  void send(int to, std::string message) override {
    // In a list, whose elements stay where they are until their sending is complete.
    Sent& sent = sent_.emplace_back();
    sent.message = std::move(message);
    require(MPI_Isend(sent.message.data(), static_cast<int>(sent.message.size()), MPI_BYTE, to,
                      kTag, comm_, &sent.request),
            "MPI_Isend");
  }

  bool receive(int& from, std::string& message) override {
    int is_here = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    require(MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &is_here, &handle, &status), "MPI_Improbe");
    if (is_here == 0) return false;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    message.resize(static_cast<size_t>(bytes));
    require(MPI_Mrecv(message.data(), bytes, MPI_BYTE, &handle, &status), "MPI_Mrecv");
    from = status.MPI_SOURCE;
    return true;
  }

  bool flush() override {
    for (auto sent = sent_.begin(); sent != sent_.end();) {
      int done = 0;
      require(MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      sent = done != 0 ? sent_.erase(sent) : std::next(sent);
    }
    return sent_.empty();
  }

 private:
  struct Sent {
    std::string message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm comm_;
  std::list<Sent> sent_;  // under way
};

class MpiEngine final : public MessageEngine {
 public:
  const char* name() const override { return "mpi"; }

  std::unique_ptr<Transport> connect(const std::vector<int>& members, int, int id,
                                     const Exchange&) override {
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    require(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    require(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group),
            "MPI_Group_incl");
    require(MPI_Comm_create_group(MPI_COMM_WORLD, group, id, &comm), "MPI_Comm_create_group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    require(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return std::make_unique<MpiTransport>(comm);
  }

  std::unique_ptr<ControlChannel> open_control() override {
    MPI_Comm comm = MPI_COMM_NULL;
    require(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    require(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return std::make_unique<MpiControl>(comm);
  }

  void finish() override {
    if (!is_finalized()) MPI_Finalize();
  }
};

}  // namespace

/// Null, with the reason in `refusal`, if this MPI cannot be used.
extern "C" MessageEngine* lockstep_make_engine(char* refusal, int size) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  int level = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
    std::snprintf(refusal, static_cast<size_t>(size), "MPI_Init_thread failed.");
    return nullptr;
  }
  if (level < MPI_THREAD_MULTIPLE) {
    std::snprintf(refusal, static_cast<size_t>(size),
                  "this MPI cannot be used by several threads at once (MPI_THREAD_MULTIPLE).");
    return nullptr;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return new MpiEngine;
}
