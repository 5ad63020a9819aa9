// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/arguments.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/flags.hpp>

namespace fsdp::train {

std::string arguments_text(const FlagSet& flags, const std::string& sharding, const std::string& precision,
                           const std::string& tiling) {
  return message(write_toml(flags, Effect::chosen), "sharding = \"", sharding, "\"\nprecision = \"", precision,
                 "\"\ntiling = \"", tiling, "\"\n");
}

}  // namespace fsdp::train
