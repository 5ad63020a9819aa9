// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include <fsdp/train/commands.hpp>

namespace fsdp::train {

int dry_run_ranks(const TrainOptions& options) {
  if (options.ranks > 0) return static_cast<int>(options.ranks);
  if (options.stack.comm.kind == CommChoice::Kind::threads) return static_cast<int>(options.stack.comm.ranks);
  const char* const launched = std::getenv("OMPI_COMM_WORLD_SIZE");
  return launched == nullptr ? 1 : std::max(1, std::atoi(launched));
}

}  // namespace fsdp::train
