// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/simulated.hpp>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

template class Simulated<device::Meta>;
FSDP_COLLECTIVES(template, Simulated<device::Meta>)

std::unique_ptr<Monitor> simulated_monitor(const SimulatedWorld& world, const Options& options) {
  constexpr int most = 1 << 20;  // a plan's tables have a row for each rank
  require<InputError>(world.ranks <= most, "simulated communicator: ", world.ranks, " ranks were asked for; at most ",
                      most, " can be planned for");
  require<InputError>(world.ranks > 0 && world.rank >= 0 && world.rank < world.ranks, "simulated communicator: rank ",
                      world.rank, " of ", world.ranks, " was asked for; ranks are 0 to size - 1");
  auto monitor = std::make_unique<Monitor>();
  monitor->rank = world.rank;
  monitor->options = options;
  return monitor;
}

}  // namespace fsdp::comm
