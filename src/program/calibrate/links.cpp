// SPDX-License-Identifier: Apache-2.0
#include "links.hpp"

#include <numeric>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::calibrate {

CollectiveSizes::CollectiveSizes(std::int64_t bytes, int rank, int ranks)
    : elements_(bytes / 4),
      calls_(static_cast<int>(std::clamp<std::int64_t>(64'000'000 / bytes, 1, 64))),
      rank_(static_cast<std::size_t>(rank)) {
  constexpr std::int64_t line = device::alignment / 4;
  const std::int64_t chunk = ceil_divide(elements_, ranks);
  for (int peer = 0; peer < ranks; ++peer)
    counts_.push_back(std::clamp<std::int64_t>(elements_ - peer * chunk, 0, chunk));
  begin_ = std::accumulate(counts_.begin(), counts_.begin() + rank, std::int64_t{0});
  full_stride_ = round_up(elements_, line);
  shard_stride_ = round_up(std::max<std::int64_t>(chunk, 1), line);
  received_counts_.assign(counts_.size(), counts_[rank_]);
  received_stride_ = round_up(chunk * ranks, line);
}

}  // namespace fsdp::calibrate
