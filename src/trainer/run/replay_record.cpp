// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/replay_record.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/split.hpp"
#include "../../fsdp/core/utf8.hpp"

namespace fsdp::train {
namespace {

constexpr std::string_view prefix = "replay.";
constexpr std::size_t most_bytes = 16384;  // largest size of an entry; trainer.json may have 64 KiB

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

}  // namespace

bool is_for_replay(std::string_view name) { return name.starts_with(prefix); }

RunRecord replay_record(const TrainOptions& options, const PolicyTexts& policies) {
  RunRecord record;
  const auto add = [&](const char* flag, const std::vector<std::string>& values) {
    std::string text;
    for (const std::string& value : values) {
      if (value.empty() || value.find('\n') != std::string::npos) return;
      text += (text.empty() ? "" : "\n") + value;
    }
    if (!text.empty() && text.size() <= most_bytes && is_utf8(text)) record[std::string(prefix) + flag] = text;
  };
  std::vector<std::string> data = options.data;
  std::ranges::transform(data, data.begin(), absolute);
  add("data", data);
  if (!options.text.tokenizer.empty()) add("tokenizer", {absolute(options.text.tokenizer)});
  const std::string& chat = options.text.chat_template;
  add("chat-template", {path_exists(chat) ? absolute(chat) : chat});
  add("end-token", {options.text.end_token});
  add("text-field", {options.text.field});
  add("sharding", {policies.sharding});
  add("precision", {policies.precision});
  add("tiling", {policies.tiling});
  return record;
}

std::vector<std::string> replay_values(const RunRecord& record, std::string_view flag) {
  const auto found = record.find(std::string(prefix) + std::string(flag));
  if (found == record.end()) return {};
  const std::vector<std::string_view> values = split_at(found->second, '\n');
  return {values.begin(), values.end()};
}

}  // namespace fsdp::train
