// SPDX-License-Identifier: Apache-2.0
// A --config file.
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/options.hpp>

#include "target.hpp"

FUZZ_TARGET(config_file) {
  const std::filesystem::path path = fsdp::fuzz::written("run.toml", input);
  fsdp::fuzz::refused_or_read([&] {
    fsdp::train::FlagSet flags;
    fsdp::train::TrainOptions options;
    fsdp::train::bind(flags, options);
    fsdp::train::apply_file(flags, path.string(), "train", {"train", "eval"});
  });
}
