// SPDX-License-Identifier: Apache-2.0
/// @file
/// --data that is text or conversations, as the tokens of a model's tokenizer: made once, by rank 0, before a run reads
/// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <comm/ranks.hpp>
#include <fsdp/core/temporary_folder.hpp>
#include <fsdp/data/corpus.hpp>
#include <fsdp/data/data_names.hpp>
#include <fsdp/data/text_source.hpp>
#include <fsdp/text/tokenizer.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// What a run reads, and from where.
struct TextInputs {
  data::DataNames data = {};
  data::TokenFormat format = data::TokenFormat::automatic;
  std::string model_folder = {};  ///< empty: the model is none
  std::string cache = {};         ///< where TextOptions says nothing; empty: a temporary folder
  std::int64_t vocabulary = 0;    ///< of the model
};

/// The tokenizer.json that --tokenizer names, or the one in a model's folder. Throws InputError where --tokenizer has
/// none.
std::optional<std::filesystem::path> tokenizer_of(const std::string& tokenizer, const std::string& model_folder);

/// Throws InputError where a tokenizer has ids that a model lacks.
void require_vocabulary(const text::Tokenizer& tokenizer, const std::filesystem::path& file, std::int64_t vocabulary);

/// Owns a temporary folder, if one was made, which is removed with it.
class TokenizedData {
 public:
  TokenizedData() = default;
  /// Tokenizes what is text, or conversations, and was not yet; a line of each and progress go to stderr. Throws
  /// InputError.
  TokenizedData(const TextOptions& options, const TextInputs& inputs);

  /// What another rank made, of its text(). Throws InputError where this rank does not see it.
  static TokenizedData at(const std::string& text);

  /// The data, folders of tokens in the place of texts, and one file in the place of conversations.
  const data::DataNames& names() const { return names_; }
  std::string text() const;

 private:
  void encode_conversations(const TextOptions& options, const TextInputs& inputs,
                            const std::optional<std::filesystem::path>& tokenizer);
  std::filesystem::path cache_for(const TextOptions& options, const TextInputs& inputs);

  data::DataNames names_;
  std::shared_ptr<const TemporaryFolder> temporary_;
};

/// The data that options name, as files of tokens or of bytes. Rank 0 makes tokens of text, and keeps them; the others
/// see where. Of TrainOptions or EvalOptions; collective.
template <class Options>
TokenizedData tokenized(const comm::Ranks& ranks, const Options& options, TextInputs inputs);

/// The same as a source, of which a fraction is held out: all of it one corpus, or each path by its weight; or
/// conversations.
template <class Options>
data::TextSource text_of(const Options& options, const data::DataNames& data, double held_out, std::int64_t vocabulary);

}  // namespace fsdp::train
