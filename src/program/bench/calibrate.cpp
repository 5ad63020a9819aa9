// SPDX-License-Identifier: Apache-2.0
#include "calibration.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <string>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::bench {

Places places_of(std::span<const std::string> hosts) {
  const auto is = [](const std::string& host) { return [&host](const std::string& other) { return other == host; }; };
  const auto per_node = std::ranges::find_if_not(hosts, is(hosts[0])) - hosts.begin();
  std::set<std::string> seen;
  for (std::ptrdiff_t first = 0; first < std::ssize(hosts); first += per_node) {
    const std::string& host = hosts[static_cast<std::size_t>(first)];
    const auto node = hosts.subspan(static_cast<std::size_t>(first))
                          .first(static_cast<std::size_t>(std::min(per_node, std::ssize(hosts) - first)));
    require<InputError>(std::ssize(node) == per_node && std::ranges::all_of(node, is(host)) && seen.insert(host).second,
                        "calibrate: plans have equally many ranks on each node, one node after the other; ", hosts[0],
                        " has ranks 0 to ", per_node - 1, ", but ", host, " has not just ranks ", first, " to ",
                        first + per_node - 1, "; start them so (mpirun --map-by slot)");
  }
  return {.nodes = static_cast<int>(std::ssize(hosts) / per_node), .per_node = static_cast<int>(per_node)};
}

std::int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  pages >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace fsdp::bench
