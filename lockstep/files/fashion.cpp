#include "lockstep/files/fashion.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/debian_package.h"
#include "lockstep/files/idx.h"
#include "lockstep/files/picture_file.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/temp_folder.h"

namespace lockstep::files {
namespace {

constexpr const char* kPackage = "dataset-fashion-mnist";

/// One of the two parts: what it is called there and here, and what it holds.
struct Part {
  const char* source;
  const char* name;
  const char* sha256;  // of the file made of it
};

constexpr Part kParts[] = {
    {"train", "train.pictures", "6489532ff1fe644a3715ebb29c039c5d2e1207a053bd762ac84b31933e22faaa"},
    {"t10k", "val.pictures", "7013615888cf7835d2ae238415f1b49a15b96310a4514d73e5df191e4375bbc7"}};

std::string sha256_of(const std::string& path) {
  const MappedFile file(path);
  return sha256_hex(file.text());
}

bool all_there(const std::string& folder) {
  for (const Part& part : kParts) {
    const std::string path = folder + "/" + part.name;
    if (!is_picture_file(path) || sha256_of(path) != part.sha256) return false;
  }
  return true;
}

void write_part(const Part& part, const std::string& from, const std::string& folder) {
  const std::string begin = from + "/" + part.source;
  const IdxArray labels = read_idx(begin + "-labels-idx1-ubyte.gz");
  const IdxArray pictures = read_idx(begin + "-images-idx3-ubyte.gz");
  if (labels.dims.size() != 1 || pictures.dims.size() != 3 || labels.dims[0] != pictures.dims[0]) {
    throw EnvironmentError(base::str(begin, "-*: labels and pictures do not belong together."));
  }
  const std::string path = folder + "/" + part.name;
  write_pictures(path,
                 {.count = pictures.dims[0],
                  .rows = pictures.dims[1],
                  .columns = pictures.dims[2],
                  .classes = std::ssize(kFashionClasses)},
                 labels.bytes, pictures.bytes);
  const std::string sha256 = sha256_of(path);
  if (sha256 == part.sha256) return;
  std::filesystem::remove(path);
  throw EnvironmentError(base::str(begin, "-* hold other pictures than Fashion-MNIST: sha256 ",
                                   sha256, " of ", part.name, ", expected ", part.sha256, "."));
}

std::string fetched(const std::string& folder) {
  try {
    return fetch_debian_package(kPackage, folder);
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(base::str(error.what(), "\n  Fetch ", kPackage,
                                     " from a Debian mirror elsewhere and give it as --from "
                                     "FILE.deb, or a folder with its four files."));
  }
}

}  // namespace

std::string other_than_fashion(const std::string& folder) {
  for (const Part& part : kParts) {
    const std::string path = folder + "/" + part.name;
    if (std::filesystem::exists(path) && sha256_of(path) != part.sha256) return path;
  }
  return "";
}

bool prepare_fashion(const std::string& from, const std::string& folder) {
  if (all_there(folder)) return false;
  std::filesystem::create_directories(folder);
  const TempFolder work("fashion");
  std::string source = from;
  if (from.empty() || from.ends_with(".deb")) {
    const std::string deb = from.empty() ? fetched(work.path()) : from;
    const std::string one =
        unpack_debian_file(deb, base::str(kParts[0].source, "-images-idx3-ubyte.gz"), work.path());
    source = std::filesystem::path(one).parent_path().string();
  }
  for (const Part& part : kParts) write_part(part, source, folder);
  return true;
}

}  // namespace lockstep::files
