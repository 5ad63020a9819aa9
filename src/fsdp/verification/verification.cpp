// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/verification/verification.hpp>

#include <tessera/fsdp/core/identity.hpp>

namespace fsdp {

void check_verifies(const StepSize& size, bool has_pieces) {
  require<InputError>(has_pieces || !size.verifies, "verification: each rank computes a piece of another one again, ",
                      "and this strategy does not cut steps into pieces; take Reproducible");
}

namespace detail {

std::optional<std::int64_t> first_difference(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b,
                                             std::int64_t units) {
  const auto differs = [&](std::int64_t at) {
    return a[static_cast<std::size_t>(at)] != b[static_cast<std::size_t>(at)];
  };
  for (std::int64_t unit = 0; unit < units; ++unit)
    if (differs(2 * unit)) return 2 * unit;
  for (std::int64_t unit = units - 1; unit >= 0; --unit)
    if (differs(2 * unit + 1)) return 2 * unit + 1;
  for (std::int64_t at = 2 * units; at < std::ssize(a); ++at)
    if (differs(at)) return at;
  return std::nullopt;
}

std::vector<int> suspects(const std::vector<Computed>& computations) {
  const auto agree = [](const Computed& a, const Computed& b) { return std::ranges::equal(a.digests, b.digests); };
  std::vector<int> blamed;
  const auto add = [&](int rank) {
    if (std::ranges::find(blamed, rank) == blamed.end()) blamed.push_back(rank);
  };
  for (const Computed& right : computations) {
    const auto alike = std::ranges::count_if(computations, [&](const Computed& other) { return agree(right, other); });
    if (2 * alike <= std::ssize(computations)) continue;
    for (const Computed& other : computations)
      if (!agree(right, other)) add(other.rank);
    return blamed;
  }
  for (const Computed& computed : computations) add(computed.rank);
  return blamed;
}

std::string ranks_in_words(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::string text;
  for (const int rank : ranks)
    text += message(text.empty() ? "" : ", or ", "rank ", rank, " on ", hosts[static_cast<std::size_t>(rank)]);
  return text;
}

std::vector<std::string> hosts_of(const comm::Ranks& ranks) {
  return comm::gather_texts(ranks, machine_name(), "hosts");
}

}  // namespace detail
}  // namespace fsdp
