// SPDX-License-Identifier: Apache-2.0
/// @file
/// Folders that users give by mistake in place of a model's folder.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp {

/// For a folder without config.json: returns a likely reason why it was given, and the path to give instead; empty if
/// no reason is known.
std::string named_instead(const std::filesystem::path& folder);

}  // namespace fsdp
