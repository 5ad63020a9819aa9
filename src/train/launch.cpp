// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/launch.hpp>

#include <cstdlib>

namespace fsdp::train {

namespace {

int number_in(const char* variable, int otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : std::max(0, std::atoi(value));
}

}  // namespace

int launched_ranks() { return std::max(1, number_in("OMPI_COMM_WORLD_SIZE", 1)); }
int launched_rank() { return number_in("OMPI_COMM_WORLD_RANK", 0); }

int ranks_on_this_machine(int ranks) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const int there = number_in(name, 0); there > 0) return there;
  return ranks;
}

}  // namespace fsdp::train
