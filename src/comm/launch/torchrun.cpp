// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of tessera/comm/rendezvous.hpp that reads torchrun's environment variables.
#include <tessera/comm/rendezvous.hpp>

#include <optional>
#include <string_view>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/strings.hpp"

namespace fsdp::comm {
namespace {

std::string_view required(const char* name) {
  const std::string_view value = environment(name);
  require<InputError>(!value.empty(), name,
                      " is not set, but others of a job's variables are; torchrun sets RANK, "
                      "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT");
  return value;
}

int number(const char* name, std::string_view text, int least, int most) {
  const std::optional<int> value = parsed<int>(text);
  require<InputError>(value && *value >= least && *value <= most, name, " is '", shortened(text),
                      "'; it must be a number from ", least, " to ", most);
  return *value;
}

}  // namespace

bool launched_by_torchrun() { return !environment("RANK").empty() || !environment("WORLD_SIZE").empty(); }

JobPlace torchrun_place() {
  if (!launched_by_torchrun()) {
    require_one_process("a rank of NCCL alone", "start the ranks with torchrun's variables (RANK, WORLD_SIZE)");
    return {};
  }
  constexpr int many = 1 << 20;
  JobPlace place;
  place.size = number("WORLD_SIZE", required("WORLD_SIZE"), 1, many);
  place.rank = number("RANK", required("RANK"), 0, many);
  place.local_rank = number("LOCAL_RANK", required("LOCAL_RANK"), 0, many);
  require<InputError>(place.rank < place.size, "RANK is ", place.rank, ", WORLD_SIZE ", place.size,
                      "; ranks are 0 to WORLD_SIZE - 1");
  const std::string_view local_size = environment("LOCAL_WORLD_SIZE");
  place.local_size = local_size.empty() ? place.local_rank + 1 : number("LOCAL_WORLD_SIZE", local_size, 1, many);
  require<InputError>(place.local_rank < place.local_size && place.local_size <= place.size, "LOCAL_RANK is ",
                      place.local_rank, ", LOCAL_WORLD_SIZE ", place.local_size, ", WORLD_SIZE ", place.size,
                      "; a machine has at most all ranks, and LOCAL_RANK counts its own from 0");
  if (place.size == 1) return place;
  place.address = required("MASTER_ADDR");
  place.port = number("MASTER_PORT", required("MASTER_PORT"), 1, 65534);
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") ++place.port;
  return place;
}

}  // namespace fsdp::comm
