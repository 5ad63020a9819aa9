// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/model_tokenizer.hpp>

#include <algorithm>
#include <mutex>
#include <set>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/tokenizer_config.hpp>

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

std::vector<std::int32_t> never_drawn(const text::Tokenizer& tokenizer, std::int64_t vocabulary,
                                      std::span<const std::int32_t> stops) {
  std::vector<std::int32_t> ids;
  for (const text::TokenId id : tokenizer.ids_without_token(vocabulary))
    if (std::ranges::find(stops, static_cast<std::int32_t>(id)) == stops.end())
      ids.push_back(static_cast<std::int32_t>(id));
  return ids;
}

void warn_of(const text::Tokenizer& tokenizer) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  for (const std::string& warning : tokenizer.warnings())
    if (printed.insert(warning).second) print_warning(warning);
}

void warn_of(const text::ChatFormat& format) {
  warn_of(format.tokenizer());
  for (const std::string& warning : format.warnings()) print_warning(warning);
}

}  // namespace fsdp::train
