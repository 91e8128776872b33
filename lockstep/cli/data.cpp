#include "lockstep/cli/data.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/files/austen.h"
#include "lockstep/files/mapped_file.h"
#include "lockstep/files/token_data.h"
#include "lockstep/input/sampler.h"
#include "lockstep/input/token_file.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kShownBytes = 160;

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

int prepare_austen(const std::string& out, const std::string& from, bool force) {
  const auto meta = files::read_token_meta(out + "/train.bin");
  // Files without meta.json are what an interrupted preparation leaves: it goes on from there.
  if (!force && meta && meta->source.find("janeaustenr") == std::string::npos) {
    refuse_folder(out, "data of another source, " + meta->source);
  }
  const bool made = files::prepare_austen(out, from);
  std::cerr << (made ? "Six novels by Jane Austen, a token a byte:\n"
                     : "Already there, with the right sha256:\n");
  say_what_is_in(out);
  return 0;
}

int prepare_text(const std::string& out, const std::string& from, bool force) {
  if (!force) refuse_other_data(out, from);
  try {
    const files::MappedFile text(from);
    files::write_byte_tokens(out, text.text(), from);
  } catch (const std::system_error& error) {
    throw EnvironmentError(base::str("cannot read ", from, ": ", error.code().message(), "."));
  }
  std::cerr << from << ", a token a byte:\n";
  say_what_is_in(out);
  return 0;
}

/// Bytes as a person can read them on one line.
std::string readable(const std::vector<int64_t>& bytes) {
  std::string text;
  for (const int64_t byte : bytes) {
    if (byte == '\n') {
      text += "\\n";
    } else if (byte < ' ' || byte == 127) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(byte));
      text += escape;
    } else {
      text += static_cast<char>(byte);
    }
  }
  return text;
}

int inspect(const std::string& path, int64_t context) {
  const auto file = input::TokenFile::open(path);
  const auto meta = files::read_token_meta(path);
  const int64_t largest = file->largest_id();
  const input::Sampler sampler{.tokens = file->size(), .context = context};
  std::cout << "file        " << path << " (" << base::bytes_text(2 * file->size()) << ")\n"
            << "tokens      " << base::with_commas(file->size()) << ", largest id " << largest
            << "\n";
  if (meta) {
    std::cout << "tokenizer   " << meta->tokenizer << ", " << meta->vocab_size << " ids\n"
              << "source      " << meta->source << "\n";
  }
  std::cout << "windows     " << base::with_commas(sampler.windows()) << " of context " << context
            << "\n";
  if (largest < 256) {
    std::vector<int64_t> first(static_cast<size_t>(std::min(kShownBytes, file->size())));
    file->read(0, static_cast<int64_t>(first.size()), first.data());
    std::cout << "begins      " << readable(first) << "\n";
  }
  if (meta) file->check_ids(meta->vocab_size);
  return 0;
}

}  // namespace

int data_command(const std::vector<std::string>& args) {
  CLI::App app("Make training data, and look at them.", "lockstep data");
  app.require_subcommand(1);

  auto* prepare = app.add_subcommand("prepare", "Make a folder with train.bin and val.bin.");
  prepare->require_subcommand(1);
  std::string austen_out = "data/austen";
  std::string austen_from;
  auto* austen =
      prepare->add_subcommand("austen", "Six novels by Jane Austen, four million bytes.");
  austen->add_option("--out", austen_out, "The folder to make")->capture_default_str();
  austen->add_option("--from", austen_from,
                     "The package r-cran-janeaustenr as FILE.deb, or its Rdata.rdb; without it, "
                     "apt-get fetches the package");

  std::string text_out;
  std::string text_from;
  auto* text = prepare->add_subcommand("text", "A text of yours; a token is a byte.");
  text->add_option("--from", text_from, "The text, in any encoding")->required();
  text->add_option("--out", text_out, "The folder to make")->required();
  bool force = false;
  for (auto* command : {austen, text}) {
    command->add_flag("--force", force, "Write over data of another source");
  }

  std::string path;
  int64_t context = 128;
  auto* look = app.add_subcommand("inspect", "What a token file holds.");
  look->add_option("FILE", path, "A token file, such as data/austen/train.bin")->required();
  look->add_option("--context", context, "Tokens in a window")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();

  if (!parse_arguments(app, args)) return 0;
  if (austen->parsed()) return prepare_austen(austen_out, austen_from, force);
  if (text->parsed()) return prepare_text(text_out, text_from, force);
  return inspect(path, context);
}

}  // namespace lockstep::cli
