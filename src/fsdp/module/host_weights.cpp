// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/host_weights.hpp>

#include <map>

#include <tessera/comm/ranks.hpp>

namespace fsdp::detail {

void require_same_replicas(const comm::Ranks& ranks, std::string_view call, std::span<const std::string_view> names,
                           std::span<const HeldPart> mine) {
  const auto count = static_cast<std::size_t>(ranks.size());
  std::vector<HeldPart> all(count * mine.size());
  ranks.gather_bytes(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), {"hashes of weights"});
  for (std::size_t parameter = 0; parameter < names.size(); ++parameter) {
    std::map<std::uint64_t, std::size_t> holders;  // hash of elements -> the first rank that stores these elements
    for (std::size_t rank = 0; rank < count; ++rank) {
      const HeldPart& part = all[rank * mine.size() + parameter];
      const std::size_t holder = holders.emplace(part.elements, rank).first->second;
      require<InputError>(part.values == all[holder * mine.size() + parameter].values, call, ": ",
                          comm::name_of(ranks.monitor(), static_cast<std::ptrdiff_t>(rank)), " has other values of '",
                          names[parameter], "' than ",
                          comm::name_of(ranks.monitor(), static_cast<std::ptrdiff_t>(holder)),
                          ", and both hold the same elements of it; give all ranks the same values");
    }
  }
}

}  // namespace fsdp::detail
