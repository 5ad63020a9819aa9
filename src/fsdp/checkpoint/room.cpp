// SPDX-License-Identifier: Apache-2.0
#include "room.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <system_error>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../core/paths.hpp"
#include "states_plan.hpp"

namespace fsdp::checkpoint {

std::optional<std::int64_t> bytes_left(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(path, error);
  while (!path_exists(there) && there.has_relative_path()) there = there.parent_path();
  struct statvfs disk {};
  if (::statvfs(there.c_str(), &disk) != 0) return std::nullopt;
  const double bytes = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  return static_cast<std::int64_t>(std::min(bytes, 0x1p62));
}

void require_room(const std::filesystem::path& dir, const Listing& model, const OptimizerStates& states,
                  std::int64_t kept, const Warn& warn) {
  const std::optional<std::int64_t> left = bytes_left(dir);
  if (!left) return;
  const std::int64_t needed =
      checked_add(plan_file(model.parameters).file_bytes, plan_states(states, model.parameters).file_bytes);
  require<InputError>(needed <= *left, dir.string(), ": a checkpoint takes ", needed, " bytes and its disk has ", *left,
                      " left: No space left on device. Make room, or choose another folder");
  if (warn && static_cast<double>(needed) * static_cast<double>(kept) > static_cast<double>(*left))
    warn(message(dir.string(), ": ", kept, " checkpoints of ", needed, " bytes each will not fit into the ", *left,
                 " bytes that its disk has left"));
}

}  // namespace fsdp::checkpoint
