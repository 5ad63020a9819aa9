// SPDX-License-Identifier: Apache-2.0
#include "places.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::bench {

Places places_of(std::span<const std::string> hosts) {
  std::vector<std::pair<std::string_view, int>> nodes;  // with their ranks, in the order of ranks
  for (const std::string& host : hosts) {
    if (nodes.empty() || nodes.back().first != host) nodes.emplace_back(host, 0);
    ++nodes.back().second;
  }
  constexpr const char* then =
      "; plans have equally many ranks on each node, one node after the other: start them so "
      "(mpirun --map-by slot)";
  for (std::size_t node = 1; node < nodes.size(); ++node) {
    const std::string_view host = nodes[node].first;
    const auto before = [&](const auto& other) { return other.first == host; };
    require<InputError>(std::none_of(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(node), before),
                        "calibrate: ", host, " has ranks again behind those of ", nodes[node - 1].first, then);
    require<InputError>(nodes[node].second == nodes[0].second, "calibrate: ", nodes[0].first, " has ", nodes[0].second,
                        " of the ranks and ", host, " ", nodes[node].second, then);
  }
  return {.nodes = static_cast<int>(nodes.size()), .per_node = nodes[0].second};
}

std::int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  pages >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace fsdp::bench
