// SPDX-License-Identifier: Apache-2.0
#include "step_folders.hpp"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iomanip>
#include <sstream>
#include <system_error>
#include <tuple>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/inspect.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/paths.hpp"
#include "../core/strings.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::string_view prefix = "step-";
constexpr std::string_view aside = ".replaced";
constexpr std::string_view temporary = ".tmp-";

/// Reads the file `latest`; returns an empty text if it does not exist.
std::string latest_of(const std::filesystem::path& dir, const Warn& warn) {
  try {
    std::string text = read_small_file(dir / latest_name, 256);
    while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos) text.pop_back();
    return text;
  } catch (const FileError& error) {
    if (warn && !error.absent()) warn(error.what());
  } catch (const InputError& error) {
    if (warn) warn(error.what());
  }
  return {};
}

std::vector<std::filesystem::path> listed(const std::filesystem::path& dir) {
  std::error_code error;
  std::vector<std::filesystem::path> entries = entries_of(dir, error);
  if (error) throw FileError(message(dir.string(), ": cannot be listed: ", error.message()), error.value());
  return entries;
}

}  // namespace

std::string step_name(std::int64_t step) {
  std::ostringstream name;
  name << prefix << std::setw(8) << std::setfill('0') << step;
  return name.str();
}

std::int64_t step_of(std::string_view name) {
  if (name.ends_with(aside)) name.remove_suffix(aside.size());
  if (!name.starts_with(prefix) || name.size() < prefix.size() + 3) return -1;
  name.remove_prefix(prefix.size());
  return parsed<std::int64_t>(name).value_or(-1);
}

std::vector<std::filesystem::path> steps_in(const std::filesystem::path& dir, const Warn& warn) {
  std::vector<std::tuple<std::int64_t, bool, std::filesystem::path>> found;
  std::error_code error;
  for (std::filesystem::path& path : listed(dir)) {
    const std::string name = path.filename().string();
    const std::int64_t step = step_of(name);
    if (step >= 0 && std::filesystem::is_directory(path, error))
      found.emplace_back(step, !name.ends_with(aside), std::move(path));
  }
  std::ranges::sort(found, std::greater{});
  std::vector<std::filesystem::path> paths;
  for (auto& each : found) paths.push_back(std::move(std::get<2>(each)));

  const std::string latest = latest_of(dir, warn);
  const std::string newest = paths.empty() ? std::string("none") : paths.front().filename().string();
  if (warn && !latest.empty() && latest != newest)
    warn(message((dir / latest_name).string(), " names ", shortened(latest), "; the newest checkpoint there is ",
                 newest));
  return paths;
}

void rename_over(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) throw_errno(to, "renamed to");
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  const std::filesystem::path older = to.string() + std::string(aside);  // for file systems without RENAME_EXCHANGE
  if (::rename(to.c_str(), older.c_str()) != 0) throw_errno(to, "moved aside");
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int number = errno;
    ::rename(older.c_str(), to.c_str());
    errno = number;
    throw_errno(to, "renamed to");
  }
  std::error_code ignored;
  std::filesystem::remove_all(older, ignored);
}

void remove_leftovers(const std::filesystem::path& dir) {
  std::error_code error;
  for (const std::filesystem::path& path : listed(dir)) {
    const std::string name = path.filename().string();
    if (step_of(name) >= 0 && name.ends_with(aside)) {
      const std::filesystem::path place = dir / name.substr(0, name.size() - aside.size());
      if (path_exists(place))
        std::filesystem::remove_all(path, error);
      else if (::rename(path.c_str(), place.c_str()) != 0)
        throw_errno(path, "given its name back");
    }
    const bool ours = name.starts_with(prefix) || name.starts_with("latest.");
    if (ours && name.find(temporary) != std::string::npos) std::filesystem::remove_all(path, error);
  }
}

void remove_older(const std::filesystem::path& dir, std::int64_t newest, std::int64_t keep,
                  std::span<const std::filesystem::path> spared) {
  std::int64_t kept = 0;
  for (const std::filesystem::path& path : steps_in(dir)) {
    const std::string name = path.filename().string();
    std::error_code error;
    const auto is_path = [&](const auto& other) { return std::filesystem::equivalent(path, other, error); };
    if (step_of(name) > newest || ++kept <= keep || std::ranges::any_of(spared, is_path)) continue;
    // Renames the folder first, so that a partially removed folder is not mistaken for a checkpoint.
    const std::filesystem::path removed = dir / (name + std::string(temporary) + "removed");
    if (::rename(path.c_str(), removed.c_str()) != 0) throw_errno(path, "removed");
    std::filesystem::remove_all(removed, error);
  }
}

}  // namespace fsdp::checkpoint
