// SPDX-License-Identifier: Apache-2.0
// The tokens.json of a folder of tokens.
#include "src/trainer/data/formats/token_files.hpp"
#include "target.hpp"

FUZZ_TARGET(token_folder) {
  const std::filesystem::path path = fsdp::fuzz::written("tokens/tokens.json", input);
  fsdp::fuzz::refused_or_read([&] { fsdp::data::read_token_folder(path.parent_path()); });
}
