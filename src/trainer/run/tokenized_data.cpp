// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/tokenized_data.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/data/conversations.hpp>
#include <tessera/trainer/data/tokenize.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/generate/model_folder.hpp>
#include <tessera/trainer/report/console.hpp>

#include "../../fsdp/checkpoint/posix.hpp"
#include "../../fsdp/core/paths.hpp"
#include "../data/formats/token_files.hpp"

namespace fsdp::train {
namespace {

constexpr const char* folder_prefix = "tokens-";
constexpr const char* conversations_prefix = "conversations-";

constexpr std::int64_t most_of_bytes = 1024;  // largest vocabulary of a model over bytes, including some special tokens

/// Returns whether the tokens under this path are complete.
bool is_finished(const std::filesystem::path& made) {
  if (!folder_exists(made)) return path_exists(made);
  const std::optional<data::TokenFolder> folder = data::read_token_folder(made);
  return folder && folder->complete;
}

/// Returns the path of the tokens of the data called `name`.
std::filesystem::path cache_for(const TextOptions& options, const TextInputs& inputs, const std::string& name,
                                TokenizedData& tokens) {
  if (!options.cache.empty()) return options.cache / std::filesystem::path(name);
  if (const auto made = inputs.made / std::filesystem::path(name); !inputs.made.empty() && is_finished(made))
    return made;
  if (!inputs.cache.empty()) return inputs.cache / std::filesystem::path(name);
  try {
    if (!tokens.temporary)
      tokens.temporary = std::make_shared<const TemporaryFolder>(train::temporary_directory(), "tessera-tokens");
  } catch (const std::exception& error) {
    throw InputError(message("a temporary folder for tokens: ", error.what(), "; set TMPDIR, or give --token-cache"));
  }
  return tokens.temporary->path() / name;
}

/// Reports the parts of a path that were not tokenized.
void note(const std::string& path, const data::LeftOut& left_out) {
  if (!left_out.empty()) print_sentence(message(path, ": ", left_out.text()));
}

/// Throws InputError for an option of tokenizing if nothing is tokenized. `why`: the reason, and advice.
void require_not_given(const char* flag, bool given, std::string_view why) {
  require<InputError>(!given, "--", flag, " is for text that a tokenizer reads, and ", why, ", or leave it out");
}

std::string end_text(const data::Tokenizing& tokenizing) {
  const std::optional<text::TokenId> end = tokenizing.end_token();
  if (!end) return "no token";
  return message("token ", *end, " (", shortened(tokenizing.tokenizer().name_of(*end).value_or("")), ")");
}

/// Writes the tokens of conversations. `name`: name of the texts, for messages.
void encode(const data::ConversationTexts& texts, const std::filesystem::path& file, const std::string& name) {
  const comm::CatchSignals signals;
  const std::vector<std::filesystem::path> made = checkpoint::make_folders(file.parent_path());
  try {
    report::ByteProgress progress("encoding " + name);
    texts.write(file, [&](std::int64_t bytes, std::int64_t all) {
      signals.throw_if_stopped("ended while encoding " + name);
      progress.show(bytes, all);
    });
  } catch (...) {
    checkpoint::remove_made(made);
    throw;
  }
}

/// Encodes conversations into one file.
TokenizedData encode_conversations(const TextOptions& options, const TextInputs& inputs, const data::DataNames& names,
                                   const std::optional<std::filesystem::path>& tokenizer) {
  require<InputError>(tokenizer.has_value(), "--data-format chat makes tokens of conversations, and there is no ",
                      "tokenizer.json in --model's folder; name one by --tokenizer");
  require<InputError>(names.weights.empty(), "--data has weights, which conversations do not know; give the files ",
                      "without them: each conversation is seen once in each epoch");
  const std::vector<std::filesystem::path> paths(names.paths.begin(), names.paths.end());
  const data::ConversationTexts texts(paths, *tokenizer, options.chat_template, options.end_token, options.learn);
  require_vocabulary(texts.format().tokenizer(), *tokenizer, inputs.vocabulary);
  warn_of(texts.format());
  note(paths.front().string(), texts.left_out());
  TokenizedData tokens;
  const std::filesystem::path file = cache_for(options, inputs, message(conversations_prefix, texts.made_of()), tokens);
  tokens.names.paths = {file.string()};
  if (!path_exists(file)) {
    encode(texts, file, paths.front().string());
    print_sentence(message("tokenized the conversations with ", tokenizer->string(), " and ", texts.format().name()));
  }
  const data::Conversations conversations(file);
  for (const std::string& each : conversations.notes()) print_sentence(each);
  return tokens;
}

/// Tokenizes text and conversations, unless the cache has their tokens already.
TokenizedData tokenized(const TextOptions& options, const TextInputs& inputs, data::DataNames names,
                        data::TokenFormat format) {
  const std::optional<std::filesystem::path> file = tokenizer_of(options.tokenizer, inputs.model_folder);
  if (format == data::TokenFormat::chat) return encode_conversations(options, inputs, names, file);
  TokenizedData tokens{.names = std::move(names)};
  if (format != data::TokenFormat::automatic) {
    require<InputError>(options.tokenizer.empty(), "--tokenizer is for text, and --data-format is ", to_text(format),
                        "; leave one of them out");
    return tokens;
  }
  if (!file) {
    for (const std::string& path : tokens.names.paths)
      require<InputError>(inputs.model_folder.empty() || inputs.vocabulary <= most_of_bytes || !data::holds_text(path),
                          "--data ", path, " is text, and ", inputs.model_folder,
                          " has no tokenizer.json; name one by ", "--tokenizer, or say --data-format bytes");
    constexpr std::string_view none = "there is no tokenizer; name one by --tokenizer";
    require_not_given("end-token", !options.end_token.empty(), none);
    require_not_given("text-field", options.field != TextOptions().field, none);
    require_not_given("token-cache", !options.cache.empty(), none);
    return tokens;
  }
  const comm::CatchSignals signals;
  bool named = false;
  for (std::string& path : tokens.names.paths) {
    if (!data::holds_text(path)) continue;
    data::Tokenizing tokenizing(
        {.inputs = {path}, .tokenizer = *file, .field = options.field, .end_token = options.end_token});
    require_vocabulary(tokenizing.tokenizer(), *file, inputs.vocabulary);
    const std::filesystem::path folder = cache_for(options, inputs, folder_prefix + tokenizing.made_of(), tokens);
    report::ByteProgress progress("tokenizing " + path);
    const data::Tokenized made = tokenizing.write(folder, [&](const data::TokenizeProgress& at) {
      signals.throw_if_stopped("ended while tokenizing " + path);
      progress.show(at.bytes, at.all_bytes);
    });
    note(path, made.left_out);
    warn_of(tokenizing.tokenizer());
    for (const std::string& warning : tokenizing.warnings()) print_warning(warning);
    if (!std::exchange(named, true))
      print_sentence(
          message("tokenizes the text with ", file->string(), "; each document ends with ", end_text(tokenizing)));
    path = folder.string();
  }
  constexpr std::string_view has_tokens = "--data holds tokens; give files of text";
  require_not_given("text-field", !named && options.field != TextOptions().field, has_tokens);
  require_not_given("token-cache", !named && !options.cache.empty(), has_tokens);
  return tokens;
}

/// Throws InputError if this rank does not see the tokens that rank 0 wrote.
data::DataNames seen_here(const std::string& text) {
  data::DataNames names = data::names_from_text(text);
  for (const std::string& path : names.paths) {
    const std::string name = std::filesystem::path(path).filename().string();
    require<InputError>(
        path_exists(path) || !(name.starts_with(folder_prefix) || name.starts_with(conversations_prefix)),
        "rank 0 put tokens into ", path,
        ", which this rank does not see; give --token-cache a folder that all hosts share");
  }
  return names;
}

}  // namespace

template <class Options>
data::TextSource text_of(const Options& options, const data::DataNames& data, double held_out,
                         std::int64_t vocabulary) {
  if (options.data_format == data::TokenFormat::chat)
    return data::TextSource(data::PackedConversations(data.paths.front(), {.sequence_length = options.seq_len,
                                                                           .validation_fraction = held_out,
                                                                           .vocabulary = vocabulary,
                                                                           .on_long = options.text.on_long}));
  std::vector<data::WeightedFiles> sources(std::max<std::size_t>(data.weights.size(), 1));
  for (std::size_t i = 0; i < data.paths.size(); ++i)
    sources[data.weights.empty() ? 0 : i].paths.emplace_back(data.paths[i]);
  for (std::size_t i = 0; i < data.weights.size(); ++i) sources[i].weight = data.weights[i];
  return {sources, options.seq_len, held_out, vocabulary, options.document_separator, options.data_format};
}
template data::TextSource text_of(const TrainOptions&, const data::DataNames&, double, std::int64_t);
template data::TextSource text_of(const EvalOptions&, const data::DataNames&, double, std::int64_t);

template <class Options>
OpenData open_data(const comm::Ranks& ranks, const Options& options, const TextInputs& inputs, double held_out) {
  const double limit = options.launch.disk_deadline_seconds;
  const data::DataNames names = data::parse_data(options.data);
  TokenizedData tokens;
  {
    const comm::CatchSignals signals;  // on every rank: the ranks that wait for rank 0 end with it
    tokens = read_together(ranks, limit, "--data", [&] {
      return ranks.rank() == 0 ? tokenized(options.text, inputs, names, options.data_format) : TokenizedData();
    });
    const std::vector<std::string> texts = comm::gather_texts(ranks, data::to_text(tokens.names), "--data");
    comm::together(ranks, "--data", [&] {
      signals.throw_if_stopped("ended before the data were read");
      if (ranks.rank() != 0) tokens.names = seen_here(texts.front());
    });
  }
  data::TextSource source = read_together(ranks, limit, "--data",
                                          [&] { return text_of(options, tokens.names, held_out, inputs.vocabulary); });
  return {.tokens = std::move(tokens), .source = std::move(source)};
}
template OpenData open_data(const comm::Ranks&, const TrainOptions&, const TextInputs&, double);
template OpenData open_data(const comm::Ranks&, const EvalOptions&, const TextInputs&, double);

}  // namespace fsdp::train
