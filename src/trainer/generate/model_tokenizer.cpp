// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/model_tokenizer.hpp>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/text/tokenizer_config.hpp>

namespace fsdp::train {

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

void warn_of(const text::ChatFormat& format) {
  for (const std::string& warning : format.warnings()) print_warning(warning);
}

}  // namespace fsdp::train
