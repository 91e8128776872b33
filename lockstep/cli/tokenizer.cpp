#include "lockstep/cli/tokenizer.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/arguments.h"
#include "lockstep/files/tokenizer.h"

namespace lockstep::cli {
namespace {

std::string everything_on_stdin() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

int64_t id_of(const std::string& word) {
  int64_t id = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (error == std::errc() && end == word.data() + word.size()) return id;
  throw UsageError(base::str("lockstep tokenizer decode: \"", word, "\" is no token id."));
}

std::vector<int64_t> ids_of(const std::vector<std::string>& words) {
  std::vector<int64_t> ids;
  for (const std::string& text : words) {
    // Ids may come as a list of another program: commas and brackets are spaces.
    std::string spaced = text;
    for (char& c : spaced) {
      if (c == ',' || c == '[' || c == ']') c = ' ';
    }
    std::istringstream in(spaced);
    for (std::string word; in >> word;) ids.push_back(id_of(word));
  }
  return ids;
}

int encode(files::Tokenizer& tokenizer, const std::string& text, bool as_json) {
  const auto ids = tokenizer.encode(text);
  if (as_json) {
    std::cout << nlohmann::json{{"tokenizer", tokenizer.name()}, {"ids", ids}}.dump() << "\n";
    return 0;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::cout << (i > 0 ? " " : "") << ids[i];
  std::cout << "\n";
  return 0;
}

int info(const files::Tokenizer& tokenizer, bool as_json) {
  const auto end = tokenizer.end_of_text();
  if (as_json) {
    nlohmann::ordered_json json = {{"tokenizer", tokenizer.name()},
                                   {"vocab_size", tokenizer.vocab_size()},
                                   {"end_of_text", nullptr}};
    if (end) json["end_of_text"] = *end;
    std::cout << json.dump() << "\n";
    return 0;
  }
  std::cout << "tokenizer   " << tokenizer.name() << "\n"
            << "ids         " << base::with_commas(tokenizer.vocab_size()) << "\n"
            << "between     "
            << (end ? base::str(*end, ", ", *tokenizer.token(*end)) : std::string("nothing"))
            << " ends a document\n";
  return 0;
}

}  // namespace

int tokenizer_command(const std::vector<std::string>& args) {
  CLI::App app("Text to token ids, and back.", "lockstep tokenizer");
  app.require_subcommand(1);
  std::string name = "r50k";
  std::string folder = files::kTokenizerFolder;
  bool as_json = false;
  std::string text;
  std::vector<std::string> ids;
  auto* make = app.add_subcommand("encode", "The ids of a text.");
  auto* from = make->add_option("TEXT", text, "the text; without it, all of stdin");
  auto* read = app.add_subcommand("decode", "The text of ids.");
  read->add_option("IDS", ids, "the ids; without them, all of stdin");
  auto* tell = app.add_subcommand("info", "How many ids, and which ends a document.");
  for (auto* command : {make, read, tell}) {
    command->add_option("--tokenizer", name, "bytes, r50k (gpt2), p50k, cl100k or o200k")
        ->capture_default_str();
    command->add_option("--files", folder, "folder of the vocabulary files")->capture_default_str();
  }
  for (auto* command : {make, tell}) command->add_flag("--json", as_json, "one object on stdout");
  if (!parse_arguments(app, args)) return 0;

  const auto tokenizer = files::open_tokenizer(name, folder);
  if (make->parsed()) {
    return encode(*tokenizer, from->count() > 0 ? text : everything_on_stdin(), as_json);
  }
  if (tell->parsed()) return info(*tokenizer, as_json);
  if (ids.empty()) ids.push_back(everything_on_stdin());
  std::cout << tokenizer->decode(ids_of(ids)) << "\n";
  return 0;
}

}  // namespace lockstep::cli
