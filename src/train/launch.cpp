// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/launch.hpp>

#include <comm/launch.hpp>

namespace fsdp::train {

int ranks_on_this_machine(int ranks) {
  const int launched = comm::launched_ranks_here();
  return launched > 0 ? launched : ranks;
}

}  // namespace fsdp::train
