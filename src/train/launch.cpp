// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/launch.hpp>

#include <cstdlib>

namespace fsdp::train {

int launched_ranks() {
  const char* const processes = std::getenv("OMPI_COMM_WORLD_SIZE");
  return processes == nullptr ? 1 : std::max(1, std::atoi(processes));
}

int ranks_on_this_machine(int ranks) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  return ranks;
}

}  // namespace fsdp::train
