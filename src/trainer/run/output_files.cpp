// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/output_files.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/data_names.hpp>

#include "../../fsdp/checkpoint/step_folders.hpp"

namespace fsdp::train {
namespace {

bool is_below(const std::filesystem::path& file, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

}  // namespace

void require_apart(const TrainOptions& options) {
  std::error_code error;
  const auto whole = [&](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  };
  const auto same = [&](const std::filesystem::path& a, const std::filesystem::path& b) {
    return whole(a) == whole(b) || std::filesystem::equivalent(a, b, error);
  };
  const auto check = [&](const char* flag, const std::optional<std::string>& file) {
    if (!file || (std::filesystem::exists(*file, error) && !std::filesystem::is_regular_file(*file, error))) return;
    const auto refuse = [&](bool is, const std::string& what) {
      require<InputError>(!is, flag, " ", *file, " is ", what, "; give it a file of its own");
    };
    for (const std::string& path : data::parse_data(options.data).paths) {
      refuse(same(*file, path), "a file of --data");
      refuse(std::filesystem::exists(*file, error) && std::filesystem::is_directory(path, error) &&
                 is_below(whole(*file), whole(path)),
             "in the folder of --data " + path);
    }
    if (!options.checkpoint_dir) return;
    for (const std::string_view name : {checkpoint::lock_name, checkpoint::latest_name})
      refuse(same(*file, std::filesystem::path(*options.checkpoint_dir) / name), "a file of --checkpoint-dir");
  };
  using Written = std::pair<const char*, const std::optional<std::string>*>;
  const std::array<Written, 3> written = {
      {{"--metrics", &options.metrics}, {"--digests", &options.digests}, {"--trace", &options.trace}}};
  for (const auto& [flag, file] : written) check(flag, *file);
  for (const auto& [flag, file] : written)
    for (const auto& [other_flag, other] : written)
      require<InputError>(
          flag == other_flag || !*file || !*other || !same(**file, **other) ||
              !(std::filesystem::is_regular_file(**file, error) || !std::filesystem::exists(**file, error)),
          flag, " and ", other_flag, " both write ", file->value_or(""), "; give each a file of its own");
}

}  // namespace fsdp::train
