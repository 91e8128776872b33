#include "lockstep/cli/data_pictures.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/files/fashion.h"
#include "lockstep/files/picture_file.h"

namespace lockstep::cli {
namespace {

constexpr const char* kFashionFolder = "data/fashion";

std::vector<int64_t> counts_of(const files::PictureFile& file) {
  std::vector<int64_t> counts;
  for (int64_t label = 0; label < file.shape().classes; ++label) {
    counts.push_back(file.count_of(label));
  }
  return counts;
}

}  // namespace

int prepare_fashion(const std::string& from, const std::string& out, bool force) {
  const std::string folder = out.empty() ? kFashionFolder : out;
  const std::string other = force ? "" : files::other_than_fashion(folder);
  if (!other.empty()) {
    throw UsageError(base::str(other,
                               " holds other pictures than Fashion-MNIST.\n  Another folder: ",
                               "--out FOLDER. To write over it: --force"));
  }
  const bool made = files::prepare_fashion(from, folder);
  std::cerr << (made ? "Fashion-MNIST, grey pictures of ten kinds of clothing:\n"
                     : "Already there, with the right sha256:\n");
  for (const char* name : {"train.pictures", "val.pictures"}) {
    const auto file = files::PictureFile::open(folder + "/" + name);
    std::cerr << "  " << file->path() << ": " << base::with_commas(file->shape().count)
              << " pictures\n";
  }
  return 0;
}

int inspect_pictures(const std::string& path, bool as_json) {
  const auto file = files::PictureFile::open(path);
  const files::PictureShape& shape = file->shape();
  const std::vector<int64_t> counts = counts_of(*file);
  if (as_json) {
    const nlohmann::ordered_json json = {
        {"file", path},       {"format", "pictures"},     {"pictures", shape.count},
        {"rows", shape.rows}, {"columns", shape.columns}, {"classes", shape.classes},
        {"by_class", counts}};
    std::cout << json.dump() << "\n";
    return 0;
  }
  std::string by_class;
  for (const int64_t count : counts) {
    by_class += (by_class.empty() ? "" : ", ") + base::with_commas(count);
  }
  std::cout << "file        " << path << " (" << base::bytes_text(shape.count * shape.points())
            << ")\n"
            << "format      pictures, a byte a point\n"
            << "pictures    " << base::with_commas(shape.count) << " of " << shape.rows << " by "
            << shape.columns << " points\n"
            << "classes     " << shape.classes << ": " << by_class << "\n";
  return 0;
}

}  // namespace lockstep::cli
