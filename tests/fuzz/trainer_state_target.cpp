// SPDX-License-Identifier: Apache-2.0
// A trainer.json.
#include "src/fsdp/checkpoint/trainer_state.hpp"
#include "target.hpp"

FUZZ_TARGET(trainer_state) {
  const std::filesystem::path path = fsdp::fuzz::written("trainer.json", input);
  fsdp::fuzz::refused_or_read([&] { fsdp::checkpoint::read_trainer_file(path, std::nullopt); });
}
