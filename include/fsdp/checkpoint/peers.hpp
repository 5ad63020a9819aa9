// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a checkpoint asks of ranks: the collectives of a save, and the same folder on all.
#pragma once

#include <filesystem>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>

namespace fsdp::train {

/// Returns the collectives that checkpoint::save needs. The communicator must outlive them.
checkpoint::Peers peers_of(const comm::Ranks& ranks);

/// Throws the same InputError on every rank unless all see the same files in a model's or checkpoint's folder; compares
/// checkpoint::folder_identity.
void agree_on_folder(const comm::Ranks& ranks, const std::filesystem::path& folder);

}  // namespace fsdp::train
