// SPDX-License-Identifier: Apache-2.0
/// @file
/// Folders that are named in place of a model's.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp {

/// Returns why a folder without config.json may have been named, and what to name instead; else nothing.
std::string named_instead(const std::filesystem::path& folder);

}  // namespace fsdp
