#include "lockstep/cli/data.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/cli/data_pictures.h"
#include "lockstep/files/austen.h"
#include "lockstep/files/picture_file.h"
#include "lockstep/files/token_data.h"
#include "lockstep/files/tokenizer.h"
#include "lockstep/files/tokenizer_files.h"
#include "lockstep/input/sampler.h"
#include "lockstep/input/token_file.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kShownTokens = 160;
constexpr const char* kAustenFolder = "data/austen";

void say_what_is_in(const std::string& folder) {
  for (const char* name : {"train.bin", "val.bin"}) {
    const auto file = input::TokenFile::open(folder + "/" + name);
    std::cerr << "  " << file->path() << ": " << base::with_commas(file->size()) << " tokens\n";
  }
}

[[noreturn]] void refuse_folder(const std::string& out, const std::string& what) {
  throw UsageError(base::str(out, " holds ", what,
                             ".\n  Another folder: --out FOLDER. To write over it: --force"));
}

/// Refuses to write over data that are not this source's. Nobody keeps a copy of the old ones.
void refuse_other_data(const std::string& out, const std::string& source) {
  std::error_code error;
  const auto refuse = [&out](const std::string& what) { refuse_folder(out, what); };
  if (const auto meta = files::read_token_meta(out + "/train.bin")) {
    if (meta->source != source) refuse(base::str("data of another source, ", meta->source));
    return;
  }
  for (const char* name : {"train.bin", "val.bin"}) {
    if (std::filesystem::exists(out + "/" + name, error)) {
      refuse(base::str("a ", name, " without meta.json"));
    }
  }
}

/// What `lockstep data prepare` was asked for.
struct PrepareArguments {
  std::string source;  // austen, fashion, tokenizers, text (with --from), or a path
  std::string from;
  std::string out;
  std::string tokenizer = "bytes";
  std::string format = "nanogpt";
  double valid_fraction = 0.1;
  bool force = false;
};

files::TokenFormat format_called(const std::string& name) {
  std::vector<std::string> names;
  for (const auto format :
       {files::TokenFormat::nanogpt, files::TokenFormat::llmc, files::TokenFormat::megatron}) {
    if (name == files::name_of(format)) return format;
    names.emplace_back(files::name_of(format));
  }
  const std::string near = base::nearest(name, names);
  throw UsageError(base::str("lockstep data prepare: there is no format ", name, "; there is ",
                             base::joined(names), ".",
                             near.empty() ? "" : base::str("\n  Did you mean ", near, "?")));
}

/// A line on stderr every few seconds: a small text needs none.
std::function<void(int64_t, int64_t, int64_t)> progress_lines() {
  using Clock = std::chrono::steady_clock;
  return [last = Clock::now()](int64_t done, int64_t all, int64_t tokens) mutable {
    if (Clock::now() - last < std::chrono::seconds(2)) return;
    last = Clock::now();
    std::cerr << "  " << base::bytes_text(done) << " of " << base::bytes_text(all) << ", "
              << base::with_commas(tokens) << " tokens" << std::endl;
  };
}

files::TokenDataOptions options_of(const PrepareArguments& arguments, const std::string& source) {
  if (!(arguments.valid_fraction > 0 && arguments.valid_fraction < 1)) {
    throw UsageError("lockstep data prepare: --valid-fraction wants a number between 0 and 1.");
  }
  return {.folder = arguments.out,
          .source = source,
          .format = format_called(arguments.format),
          .valid_fraction = arguments.valid_fraction,
          .progress = progress_lines()};
}

std::string tokens_text(const std::string& tokenizer) {
  return tokenizer == "bytes" ? "a token a byte:\n" : base::str("tokens of ", tokenizer, ":\n");
}

int prepare_austen(PrepareArguments arguments) {
  if (arguments.out.empty()) {
    arguments.out = kAustenFolder;
    if (arguments.tokenizer != "bytes") arguments.out += "-" + arguments.tokenizer;
  }
  const auto options = options_of(arguments, "");
  const auto meta = files::read_token_meta(arguments.out + "/train.bin");
  // Files without meta.json are what an interrupted preparation leaves: it goes on from there.
  if (!arguments.force && meta && meta->source.find("janeaustenr") == std::string::npos) {
    refuse_folder(arguments.out, "data of another source, " + meta->source);
  }
  const auto tokenizer = files::open_tokenizer(arguments.tokenizer);
  const bool made = files::prepare_austen(arguments.from, *tokenizer, options);
  std::cerr << (made ? "Six novels by Jane Austen, " + tokens_text(tokenizer->name())
                     : "Already there, with the right sha256:\n");
  say_what_is_in(arguments.out);
  return 0;
}

int prepare_path(const PrepareArguments& arguments, const std::string& path) {
  if (arguments.out.empty()) {
    throw UsageError("lockstep data prepare: where to? --out FOLDER names the folder to make.");
  }
  const auto options = options_of(arguments, path);
  if (!arguments.force) refuse_other_data(arguments.out, path);
  const auto tokenizer = files::open_tokenizer(arguments.tokenizer);
  files::write_token_data_of(path, *tokenizer, options);
  std::cerr << path << ", " << tokens_text(tokenizer->name());
  say_what_is_in(arguments.out);
  return 0;
}

int prepare_tokenizers(const PrepareArguments& arguments) {
  const std::string folder = arguments.out.empty() ? files::kTokenizerFolder : arguments.out;
  const auto brought = files::prepare_tokenizers(folder, arguments.from);
  std::cerr << (brought.empty() ? "Already there, with the right sha256: " : "Brought: ")
            << (brought.empty() ? folder : base::joined(brought) + " into " + folder) << "\n";
  return 0;
}

int prepare(const PrepareArguments& arguments) {
  const std::string& source = arguments.source;
  if (source == "austen") return prepare_austen(arguments);
  if (source == "fashion") return prepare_fashion(arguments.from, arguments.out, arguments.force);
  if (source == "tokenizers") return prepare_tokenizers(arguments);
  if (source == "text") {
    if (arguments.from.empty()) {
      throw UsageError("lockstep data prepare text: --from FILE names the text.");
    }
    return prepare_path(arguments, arguments.from);
  }
  std::error_code error;
  const bool a_path = source.find_first_of("./") != std::string::npos;
  if (a_path || std::filesystem::exists(source, error)) return prepare_path(arguments, source);
  const std::string near = base::nearest(source, {"austen", "fashion", "text", "tokenizers"});
  throw UsageError(
      base::str("lockstep data: there is no prepare ", source,
                "; there is austen, fashion, text and tokenizers, and no file or folder ", source,
                ".", near.empty() ? "" : base::str("\n  Did you mean ", near, "?")));
}

/// Text as a person can read it on one line.
std::string readable(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 127) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(c));
      line += escape;
    } else {
      line += c;
    }
  }
  return line;
}

/// The first tokens as text; nothing where that cannot be said.
std::string beginning(const input::TokenFile& file, const std::optional<files::TokenMeta>& meta,
                      int64_t largest) {
  std::vector<int64_t> ids(static_cast<size_t>(std::min(kShownTokens, file.size())));
  file.read(0, std::ssize(ids), ids.data());
  try {
    if (meta) return readable(files::open_tokenizer(meta->tokenizer)->decode_what_is_known(ids));
    if (largest < 256) return readable(files::open_tokenizer("bytes")->decode(ids));
  } catch (const Error&) {  // its vocabulary is not here, or an id is none: the rest can be told
  }
  return "";
}

int inspect(const std::string& path, int64_t context, bool as_json) {
  if (files::is_picture_file(path)) return inspect_pictures(path, as_json);
  const auto file = input::TokenFile::open(path);
  const auto meta = files::read_token_meta(path);
  const auto& layout = file->layout();
  const int64_t largest = file->largest_id();
  const input::Sampler sampler{.tokens = file->size(), .context = context};
  const std::string begins = beginning(*file, meta, largest);
  if (meta) file->check_ids(meta->vocab_size);
  if (as_json) {
    nlohmann::ordered_json json = {{"file", file->path()},
                                   {"format", files::name_of(layout.format)},
                                   {"dtype", files::name_of(layout.type)},
                                   {"tokens", file->size()},
                                   {"largest_id", largest},
                                   {"context", context},
                                   {"windows", sampler.windows()}};
    if (!layout.documents.empty()) json["documents"] = layout.documents.size() - 1;
    if (meta) {
      json["tokenizer"] = meta->tokenizer;
      json["vocab_size"] = meta->vocab_size;
      json["source"] = meta->source;
      json["sha256"] = meta->sha256;
    }
    if (!begins.empty()) json["begins"] = begins;
    std::cout << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  std::cout << "file        " << file->path() << " ("
            << base::bytes_text(files::bytes_of(layout.type) * file->size()) << ")\n"
            << "format      " << files::name_of(layout.format) << ", "
            << files::name_of(layout.type) << "\n"
            << "tokens      " << base::with_commas(file->size()) << ", largest id " << largest
            << "\n";
  if (!layout.documents.empty()) {
    std::cout << "documents   " << base::with_commas(std::ssize(layout.documents) - 1) << "\n";
  }
  if (meta) {
    std::cout << "tokenizer   " << meta->tokenizer << ", " << meta->vocab_size << " ids\n"
              << "source      " << meta->source << "\n";
  }
  std::cout << "windows     " << base::with_commas(sampler.windows()) << " of context " << context
            << "\n";
  if (!begins.empty()) std::cout << "begins      " << begins << "\n";
  return 0;
}

}  // namespace

int data_command(const std::vector<std::string>& args) {
  CLI::App app("Make training data, and look at them.", "lockstep data");
  app.require_subcommand(1);

  PrepareArguments arguments;
  auto* make = app.add_subcommand(
      "prepare", "Make a folder of training and validation data, or bring vocabulary files.");
  make->add_option(
          "SOURCE", arguments.source,
          "A text file, a .jsonl file, a folder of both; austen: six novels by Jane "
          "Austen; fashion: the pictures of Fashion-MNIST; tokenizers: the vocabularies of "
          "r50k (gpt2), p50k, cl100k, o200k")
      ->required();
  make->add_option("--out", arguments.out,
                   "The folder to make (austen: data/austen; fashion: data/fashion; tokenizers: "
                   "data/tokenizers)");
  make->add_option("--from", arguments.from,
                   "austen: the package r-cran-janeaustenr as FILE.deb, or its Rdata.rdb; "
                   "fashion: the package dataset-fashion-mnist as FILE.deb, or a folder of its "
                   "files; "
                   "tokenizers: a folder with the files or packages; text: the text");
  make->add_option("--tokenizer", arguments.tokenizer, "bytes, r50k (gpt2), p50k, cl100k or o200k")
      ->capture_default_str();
  make->add_option("--valid-fraction", arguments.valid_fraction, "The last part, to validate with")
      ->capture_default_str();
  make->add_option("--format", arguments.format, "nanogpt, llmc or megatron")
      ->capture_default_str();
  make->add_flag("--force", arguments.force, "Write over data of another source");

  std::string path;
  int64_t context = 128;
  bool as_json = false;
  auto* look = app.add_subcommand("inspect", "What a file of tokens or pictures holds.");
  look->add_option("FILE", path, "Such as data/austen/train.bin, data/fashion/train.pictures")
      ->required();
  look->add_option("--context", context, "Tokens in a window")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  look->add_flag("--json", as_json, "one object on stdout");

  if (!parse_arguments(app, args)) return 0;
  return make->parsed() ? prepare(arguments) : inspect(path, context, as_json);
}

}  // namespace lockstep::cli
