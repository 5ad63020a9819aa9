// SPDX-License-Identifier: Apache-2.0
#include <comm/launch.hpp>

#include <comm/monitor.hpp>
#include <fsdp/core/error.hpp>

namespace fsdp::comm {

int exit_status_of(const std::exception& error) {
  const bool can_be_mended =
      dynamic_cast<const InputError*>(&error) != nullptr || dynamic_cast<const MemoryError*>(&error) != nullptr;
  if (can_be_mended) return ExitStatus::bad_input;
  const bool rank_or_numbers =
      dynamic_cast<const CollectiveError*>(&error) != nullptr || dynamic_cast<const DivergedError*>(&error) != nullptr;
  return rank_or_numbers ? ExitStatus::lost : ExitStatus::failed;
}

}  // namespace fsdp::comm
