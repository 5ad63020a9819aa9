// SPDX-License-Identifier: Apache-2.0
#include "named_instead.hpp"

#include <system_error>

#include "../core/paths.hpp"

namespace fsdp {
namespace {

/// Returns the snapshot with a config.json in a repository's folder of huggingface_hub's cache; empty if there is none.
std::filesystem::path snapshot_in(const std::filesystem::path& folder) {
  std::filesystem::path found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder / "snapshots", error), end; !error && entry != end;
       entry.increment(error))
    if (path_exists(entry->path() / "config.json") && entry->path() > found) found = entry->path();
  return found;
}

}  // namespace

std::string named_instead(const std::filesystem::path& folder) {
  if (path_exists(folder / "adapter_config.json"))
    return "it holds adapters: give the folder of their model, and this one for its adapters";
  if (const std::filesystem::path snapshot = snapshot_in(folder); !snapshot.empty())
    return "it is a repository in a cache of downloads: name its snapshot " + snapshot.string();
  std::string newest;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step-") && name.find('.') == name.npos && name > newest) newest = name;
  }
  return newest.empty() ? "" : "it is a directory of checkpoints: name one, such as " + (folder / newest).string();
}

}  // namespace fsdp
