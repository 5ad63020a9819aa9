// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tokenizes --data that is text or conversations. Rank 0 does it once, before the run reads the tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/data/corpus.hpp>
#include <tessera/trainer/data/data_inputs.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// The data of a run, and the settings for tokenizing them.
struct TextInputs {
  data::DataNames data = {};
  data::TokenFormat format = data::TokenFormat::automatic;
  std::string model_folder = {};  ///< folder of --model; empty if --model is not a folder
  std::string cache = {};         ///< used if TextOptions::cache is empty; if this is empty, too: a temporary folder
  std::string made = {};          ///< another cache, whose complete tokens are used; it is never written
  std::int64_t vocabulary = 0;    ///< size of the model's vocabulary
};

/// Data in tokenized form. Owns the temporary folder with the tokens, if one is used, and removes it at the end.
class TokenizedData {
 public:
  TokenizedData() = default;
  /// Tokenizes text and conversations, unless the cache has their tokens already. Reports on stderr. Throws InputError.
  TokenizedData(const TextOptions& options, const TextInputs& inputs);

  /// Opens the data that rank 0 tokenized; `text`: rank 0's text(). Throws InputError if this rank does not see the
  /// files.
  static TokenizedData at(const std::string& text);

  /// Paths of the data: folders of tokens instead of text, and one file instead of all conversations.
  const data::DataNames& names() const { return names_; }
  std::string text() const;  ///< names() as text, for `at`

 private:
  void encode_conversations(const TextOptions& options, const TextInputs& inputs,
                            const std::optional<std::filesystem::path>& tokenizer);
  /// Returns the path of the tokens of the data called `name`.
  std::filesystem::path cache_for(const TextOptions& options, const TextInputs& inputs, const std::string& name);

  data::DataNames names_;
  std::shared_ptr<const TemporaryFolder> temporary_;
};

/// The opened data of a run.
struct OpenData {
  TokenizedData tokens;
  data::TextSource source;
};
/// Tokenizes and opens the data of TrainOptions or EvalOptions. Rank 0 tokenizes text and owns the files; the other
/// ranks open them. `inputs`: without its `data` and `format`; `held_out`: see text_of. Collective.
template <class Options>
OpenData open_data(const comm::Ranks& ranks, const Options& options, TextInputs inputs, double held_out);

/// Opens tokenized data as a source of batches: conversations, one corpus of all paths, or one corpus per path if they
/// have weights. `held_out`: fraction of the windows to hold out.
template <class Options>
data::TextSource text_of(const Options& options, const data::DataNames& data, double held_out, std::int64_t vocabulary);

}  // namespace fsdp::train
