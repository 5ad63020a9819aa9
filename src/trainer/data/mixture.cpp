// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/mixture.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/trainer/data/sampler.hpp>

namespace fsdp::data {
namespace {

constexpr std::uint64_t whole_quota = std::uint64_t{1} << 32;

/// Returns how many of the first n windows a quota takes: n x quota, rounded to the nearest.
std::int64_t taken(std::int64_t n, std::uint64_t quota) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::int64_t>((static_cast<Wide>(n) * quota + whole_quota / 2) >> 32);
}

}  // namespace

Mixture::Mixture(std::uint64_t seed, std::vector<Source> sources) : seed_(seed), sources_(std::move(sources)) {
  require(!sources_.empty(), "data: a mixture of no source");
  double rest = std::accumulate(sources_.begin(), sources_.end(), 0.0,
                                [](double sum, const Source& source) { return sum + source.weight; });
  for (const Source& source : sources_) {
    require(source.windows >= 1 && source.weight > 0, "data: a source of ", source.windows, " windows and weight ",
            source.weight);
    const double quota = &source == &sources_.back() ? 1.0 : std::min(source.weight / rest, 1.0);
    quotas_.push_back(static_cast<std::uint64_t>(std::llround(quota * static_cast<double>(whole_quota))));
    rest -= source.weight;
  }
}

Mixture::Window Mixture::operator()(std::int64_t n) const {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const std::int64_t before = taken(n, quotas_[i]);
    if (taken(n + 1, quotas_[i]) == before) {
      n -= before;  // its index among the windows left to later sources
      continue;
    }
    const std::int64_t windows = sources_[i].windows;
    const Permutation order(mixed(seed_ + i), static_cast<std::uint64_t>(before / windows), windows);
    return {.source = i, .window = order(before % windows)};
  }
  throw Error("data: a mixture whose quotas leave a window out");
}

}  // namespace fsdp::data
