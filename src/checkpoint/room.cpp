// SPDX-License-Identifier: Apache-2.0
#include <sys/statvfs.h>

#include <system_error>

#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>

#include "tensors_of.hpp"

namespace fsdp::checkpoint {

void require_room(const std::filesystem::path& dir, const ModelListing& model, const OptimizerStates& states,
                  std::int64_t kept, const Warn& warn) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(dir, error);
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  struct statvfs disk {};
  if (::statvfs(there.c_str(), &disk) != 0) return;  // saving will tell
  const std::int64_t needed =
      checked_add(plan_file(model.parameters).file_bytes, plan_file(tensors_of(states, model.parameters)).file_bytes);
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  require<InputError>(static_cast<double>(needed) <= free, "--checkpoint-dir ", dir.string(), ": a checkpoint takes ",
                      needed, " bytes and its disk has ", static_cast<std::int64_t>(free),
                      " left: No space left on device. Make room, or choose another folder");
  if (warn && static_cast<double>(needed) * static_cast<double>(kept) > free)
    warn(message("--checkpoint-dir ", dir.string(), ": ", kept, " checkpoints of ", needed,
                 " bytes each will not fit into the ", static_cast<std::int64_t>(free),
                 " bytes that its disk has left; --keep N keeps the newest N"));
}

}  // namespace fsdp::checkpoint
