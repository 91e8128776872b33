#include "lockstep/files/witness_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/shallow_json.h"
#include "lockstep/base/str.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/plan/param_table_json.h"

namespace lockstep::files {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kMetadata = "witness";
constexpr const char* kExtension = ".safetensors";

/// JSON has no word for inf and nan, which a broken run ends in.
std::string exact_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

double number_of(const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc{} || end != last) throw UsageError("\"" + text + "\" is no number");
  return value;
}

std::string path_of(const std::string& folder, const StepWitness& witness) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "/step_%08lld.rank_%04d%s",
                static_cast<long long>(witness.step), witness.rank, kExtension);
  return folder + name.data();
}

void require_place(const WitnessPiece& piece, const plan::ParamTable& table) {
  const bool known = piece.param >= 0 && piece.param < std::ssize(table.params);
  if (known && piece.lo >= 0 && piece.lo <= piece.hi &&
      piece.hi <= table.params[static_cast<size_t>(piece.param)].numel) {
    return;
  }
  throw UsageError(base::str("there are no elements ", piece.lo, " to ", piece.hi, " of parameter ",
                             piece.param, " (", piece.kind, ")"));
}

Json described(const StepWitness& witness) {
  Json digests = Json::array();
  for (const WitnessDigest& digest : witness.digests) {
    digests.push_back({digest.kind, digest.name, digest.leaf, digest.micro, digest.digest.text()});
  }
  Json pieces = Json::array();
  for (const WitnessPiece& piece : witness.pieces) {
    pieces.push_back({piece.kind, piece.param, piece.lo, piece.hi});
  }
  return {{"rank", witness.rank},
          {"step", witness.step},
          {"loss", exact_text(witness.loss)},
          {"grad_norm", exact_text(witness.grad_norm)},
          {"table", plan::to_json(witness.table)},
          {"digests", std::move(digests)},
          {"pieces", std::move(pieces)}};
}

StepWitness witness_of(const Json& json) {
  StepWitness witness{.rank = json.at("rank"),
                      .step = json.at("step"),
                      .loss = number_of(json.at("loss")),
                      .grad_norm = number_of(json.at("grad_norm")),
                      .table = plan::param_table_from_json(json.at("table")),
                      .digests = {},
                      .pieces = {}};
  for (const Json& digest : json.at("digests")) {
    witness.digests.push_back({.kind = digest.at(0),
                               .name = digest.at(1),
                               .leaf = digest.at(2),
                               .micro = digest.at(3),
                               .digest = plan::parse_digest(digest.at(4).get<std::string>())});
  }
  for (const Json& piece : json.at("pieces")) {
    witness.pieces.push_back({.kind = piece.at(0),
                              .param = piece.at(1),
                              .lo = piece.at(2),
                              .hi = piece.at(3),
                              .values = {}});
    require_place(witness.pieces.back(), witness.table);
  }
  return witness;
}

StepWitness read_file(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto found = file.metadata().find(kMetadata);
  if (found == file.metadata().end()) {
    throw StateError(
        base::str(path, " is no witness of a step: its metadata have no \"", kMetadata, "\"."));
  }
  StepWitness witness;
  try {
    witness = witness_of(Json::parse(base::shallow_json(found->second)));
  } catch (const Json::exception& error) {
    throw StateError(base::str(path, " is no witness of a step: ", error.what()));
  } catch (const UsageError& error) {
    throw StateError(base::str(path, " is no witness of a step: ", error.what()));
  }
  for (size_t i = 0; i < witness.pieces.size(); ++i) {
    WitnessPiece& piece = witness.pieces[i];
    const auto bytes = (piece.hi - piece.lo) * static_cast<int64_t>(sizeof(float));
    const std::string name = std::to_string(i);
    if (const SafetensorsFile::Info& info = file.info(name);
        info.dtype != "F32" || info.bytes != bytes) {
      throw StateError(base::str(path, ": tensor \"", name, "\" has ", info.bytes, " bytes of ",
                                 info.dtype, ", but its piece has ", piece.hi - piece.lo,
                                 " elements of F32."));
    }
    piece.values.resize(static_cast<size_t>(piece.hi - piece.lo));
    file.read(name, piece.values.data(), bytes);
  }
  return witness;
}

}  // namespace

void write_witness(const std::string& folder, const StepWitness& witness) {
  std::vector<TensorEntry> tensors;
  for (const WitnessPiece& piece : witness.pieces) {
    require_place(piece, witness.table);
    const auto count = std::ssize(piece.values);
    if (count != piece.hi - piece.lo) {
      throw UsageError(base::str("a witness has ", count, " values of elements ", piece.lo, " to ",
                                 piece.hi, " of parameter ", piece.param, " (", piece.kind, ")"));
    }
    tensors.push_back({.name = std::to_string(tensors.size()),
                       .dtype = "F32",
                       .shape = {count},
                       .data = piece.values.data(),
                       .bytes = count * static_cast<int64_t>(sizeof(float))});
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw StateError(base::str("cannot make the folder ", folder, ": ", error.message()));
  write_safetensors(path_of(folder, witness), tensors, {{kMetadata, described(witness).dump()}});
}

std::vector<StepWitness> read_witness(const std::string& folder) {
  std::vector<StepWitness> witnesses;
  if (!fs::is_directory(folder)) return witnesses;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == kExtension) {
      witnesses.push_back(read_file(entry.path().string()));
    }
  }
  std::sort(witnesses.begin(), witnesses.end(), [](const StepWitness& a, const StepWitness& b) {
    return std::pair(a.step, a.rank) < std::pair(b.step, b.rank);
  });
  return witnesses;
}

}  // namespace lockstep::files
