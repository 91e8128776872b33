// The manifest of a checkpoint, as it is and with its digest made right: no change of one byte gets
// past the digest, and what lies behind it is to be reached.

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/files/sha256.h"
#include "tests/fuzz/target.h"

namespace {

void read(std::string_view text) {
  using namespace lockstep;
  try {
    const auto manifest = checkpoints::parse_manifest(text);
    // Settings that it leaves out are said in another text; that says the same.
    const std::string again = checkpoints::manifest_text(manifest);
    fuzz::require(checkpoints::manifest_text(checkpoints::parse_manifest(again)) == again,
                  "another manifest");
  } catch (const StateError&) {
  }
}

}  // namespace

LOCKSTEP_FUZZ_TARGET(checkpoint_manifest) {
  read(bytes);
  if (bytes.size() > 8 * 1024) return;  // what writes the digest here calls itself for each bracket
  auto body = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return;
  body.erase("sha256");
  try {
    body["sha256"] = lockstep::files::sha256_hex(body.dump());
    read(body.dump(1, ' ', true) + '\n');
  } catch (const nlohmann::json::exception&) {  // text that is no UTF-8 cannot be written
  }
}
