// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/tokenized_data.hpp>

#include <cstdio>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

#include <fsdp/core/error.hpp>
#include <fsdp/data/tokenize.hpp>
#include <fsdp/report/byte_progress.hpp>
#include <fsdp/text/tokenizer_config.hpp>

namespace fsdp::train {
namespace {

constexpr const char* folder_prefix = "tokens-";
constexpr std::int64_t most_of_bytes = 1024;  // a vocabulary of bytes and some tokens of its own

std::shared_ptr<const TemporaryFolder> make_temporary_folder() {
  try {
    return std::make_shared<const TemporaryFolder>(std::filesystem::temp_directory_path(), "tessera-tokens");
  } catch (const std::exception& error) {
    throw InputError(message("a temporary folder for tokens: ", error.what(), "; set TMPDIR, or give --token-cache"));
  }
}

std::string end_text(const data::Tokenizing& tokenizing) {
  const std::optional<text::TokenId> end = tokenizing.end_token();
  if (!end) return "nothing";
  return message("token ", *end, " (", tokenizing.tokenizer().name_of(*end).value_or(""), ")");
}

}  // namespace

std::optional<std::filesystem::path> tokenizer_of(const std::string& tokenizer, const std::string& model_folder) {
  if (!tokenizer.empty()) return text::tokenizer_at(tokenizer);
  if (!std::filesystem::is_directory(model_folder)) return std::nullopt;
  return text::find_tokenizer(model_folder);
}

void require_vocabulary(const text::Tokenizer& tokenizer, const std::filesystem::path& file, std::int64_t vocabulary) {
  require<InputError>(tokenizer.vocabulary_size() <= vocabulary, file.string(), " has token ids up to ",
                      tokenizer.vocabulary_size() - 1, ", and the model knows ", vocabulary,
                      " tokens; take the model's own tokenizer, or a new model with --vocab ",
                      tokenizer.vocabulary_size());
}

TokenizedData::TokenizedData(const TextOptions& options, const TextInputs& inputs) : names_(inputs.data) {
  const std::optional<std::filesystem::path> file = tokenizer_of(options.tokenizer, inputs.model_folder);
  if (inputs.format != data::TokenFormat::automatic) {
    require<InputError>(options.tokenizer.empty(),
                        "--tokenizer is for text, and --data-format says otherwise; leave one of ", "them out");
    return;
  }
  if (!file) {
    for (const std::string& path : names_.paths)
      require<InputError>(inputs.model_folder.empty() || inputs.vocabulary <= most_of_bytes || !data::holds_text(path),
                          "--data ", path, " is text, and ", inputs.model_folder,
                          " has no tokenizer.json; name one by ", "--tokenizer, or say --data-format bytes");
    return;
  }
  std::filesystem::path cache = options.cache.empty() ? inputs.cache : options.cache;
  bool named = false;
  for (std::string& path : names_.paths) {
    if (!data::holds_text(path)) continue;
    data::Tokenizing tokenizing(
        {.inputs = {path}, .tokenizer = *file, .field = options.field, .end_token = options.end_token});
    require_vocabulary(tokenizing.tokenizer(), *file, inputs.vocabulary);
    if (cache.empty()) cache = (temporary_ = make_temporary_folder())->path();
    if (!std::exchange(named, true))
      std::fprintf(stderr, "tessera: text becomes tokens by %s; behind each document stands %s\n", file->c_str(),
                   end_text(tokenizing).c_str());
    const std::filesystem::path folder = cache / (folder_prefix + tokenizing.made_of());
    report::ByteProgress progress("tokenizing " + path);
    tokenizing.write(folder, [&](const data::TokenizeProgress& at) { progress.show(at.bytes, at.all_bytes); });
    path = folder.string();
  }
}

TokenizedData TokenizedData::at(const std::string& text) {
  TokenizedData data;
  data.names_ = data::names_from_text(text);
  std::error_code error;
  for (const std::string& path : data.names_.paths)
    require<InputError>(std::filesystem::exists(path, error) ||
                            !std::filesystem::path(path).filename().string().starts_with(folder_prefix),
                        "rank 0 put tokens into ", path,
                        ", which this rank does not see; give --token-cache a folder "
                        "that all hosts share");
  return data;
}

std::string TokenizedData::text() const { return data::to_text(names_); }

}  // namespace fsdp::train
