// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tokenizes --data that is text or conversations. Rank 0 does it once, before the run reads the tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/data/data_inputs.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// How the data of a run are tokenized, besides TextOptions.
struct TextInputs {
  std::string model_folder = {};  ///< folder of --model; empty if --model is not a folder
  std::string cache = {};         ///< used if TextOptions::cache is empty; if this is empty, too: a temporary folder
  std::string made = {};          ///< another cache, whose complete tokens are used; it is never written
  std::int64_t vocabulary = 0;    ///< size of the model's vocabulary
};

/// Data in tokenized form. The temporary folder with the tokens, if one is used, is removed with the last copy.
struct TokenizedData {
  /// Paths of the data: folders of tokens instead of text, and one file instead of all conversations.
  data::DataNames names = {};
  std::shared_ptr<const TemporaryFolder> temporary = {};  ///< contains the tokens of rank 0 if there is no cache
};

/// The opened data of a run.
struct OpenData {
  TokenizedData tokens;
  data::TextSource source;
};

/// Tokenizes and opens the data of TrainOptions or EvalOptions. Rank 0 tokenizes text, unless the cache has its tokens,
/// reports on stderr, and owns the files; the others open them. `held_out`: see text_of. Collective; throws InputError.
template <class Options>
OpenData open_data(const comm::Ranks& ranks, const Options& options, const TextInputs& inputs, double held_out);

/// Opens tokenized data as a source of batches: conversations, one corpus of all paths, or one corpus per path if they
/// have weights. `held_out`: fraction of the windows to hold out.
template <class Options>
data::TextSource text_of(const Options& options, const data::DataNames& data, double held_out, std::int64_t vocabulary);

}  // namespace fsdp::train
