// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/sampler.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp::data {
namespace {

constexpr int rounds = 8;

/// Throws InputError, with `problem` and the nearest valid sizes, unless a batch is a multiple of `parts`.
void require_multiple(std::int64_t batch, std::int64_t parts, const std::string& problem) {
  if (batch % parts == 0) return;
  const std::int64_t below = batch / parts * parts;
  throw InputError(message(problem, "; the nearest sizes that can: ", below > 0 ? std::to_string(below) + " and " : "",
                           below + parts));
}

void require_batch(std::int64_t batch) {
  require<InputError>(batch >= 1, "a batch of ", batch, " sequences; it must be at least 1");
}

constexpr std::uint64_t whole_quota = std::uint64_t{1} << 32;

/// Returns the number of windows that a quota takes among the first n: n x quota, rounded to the nearest.
std::int64_t taken(std::int64_t n, std::uint64_t quota) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::int64_t>((static_cast<Wide>(n) * quota + whole_quota / 2) >> 32);
}

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t number, std::int64_t size)
    : key_(mixed(mixed(seed) ^ number)), size_(size) {
  require(size >= 1, "data: a permutation of ", size, " windows");
  const int bits = std::bit_width(static_cast<std::uint64_t>(size - 1));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

std::int64_t Permutation::operator()(std::int64_t i) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t scrambled = mixed(key_ + (static_cast<std::uint64_t>(round) << 58) + right) & mask;
      const std::uint64_t next = left ^ scrambled;
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(value);
}

void check_batch(std::int64_t batch, std::int64_t groups, std::int64_t micro_batches, std::int64_t ranks_per_sequence) {
  require_batch(batch);
  require<InputError>(micro_batches >= 1, "gradient accumulation over ", micro_batches,
                      " micro-batches; it must be at least 1");
  require_multiple(
      batch, checked_multiply(groups, micro_batches),
      message("a batch of ", batch, " sequences cannot be shared by ", readers_text(groups, ranks_per_sequence),
              ranks_per_sequence == 1 ? "" : " (--sequence)", " x ", micro_batches, " micro-batches"));
}

void check_pieces(std::int64_t batch, std::int64_t pieces) {
  require_batch(batch);
  require<InputError>(pieces >= 1, "a step of ", pieces, " pieces; it must have at least 1");
  require_multiple(batch, pieces,
                   message("a batch of ", batch, " sequences cannot be cut into ", pieces,
                           " pieces (--sharding ...:pieces=", pieces, ")"));
}

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
  for (const auto& [i, quota] : ranges::views::enumerate(quotas_)) {
    const std::int64_t before = taken(n, quota);
    if (taken(n + 1, quota) == before) {
      n -= before;  // its index among the windows that are left for later sources
      continue;
    }
    const std::int64_t windows = sources_[i].windows;
    const Permutation order(mixed(seed_ + i), static_cast<std::uint64_t>(before / windows), windows);
    return {.source = i, .window = order(before % windows)};
  }
  throw Error("data: a mixture whose quotas leave a window out");
}

Sampler::Sampler(std::uint64_t seed, std::int64_t windows, std::int64_t batch, Order order)
    : seed_(seed), windows_(windows), batch_(batch), order_(std::move(order)) {
  require(windows >= 1 && batch >= 1, "data: a sampler of ", windows, " windows in batches of ", batch);
}

void Sampler::restore(Position position) {
  require<InputError>(position.epoch >= 0 && position.index >= 0 && position.index < windows_, "data: position ",
                      position.index, " of epoch ", position.epoch, " is not inside the ", windows_,
                      " training windows; were other data or another --seq-len used?");
  position_ = position;
}

void Sampler::advance() {
  const std::int64_t end = position_.index + batch_;
  position_ = {.epoch = position_.epoch + end / windows_, .index = end % windows_};
}

std::vector<std::int64_t> Sampler::draw(std::int64_t begin, std::int64_t count) const {
  std::vector<std::int64_t> drawn;
  if (order_) {
    drawn.resize(static_cast<std::size_t>(count));
    std::int64_t next = checked_add(checked_multiply(position_.epoch, windows_), position_.index + begin);
    std::ranges::generate(drawn, [&] { return order_(next++); });
    return drawn;
  }
  drawn.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = position_.index + begin; count > 0;) {
    const Permutation order(seed_, static_cast<std::uint64_t>(position_.epoch + i / windows_), windows_);
    do drawn.push_back(order(i++ % windows_));
    while (--count > 0 && i % windows_ != 0);
  }
  return drawn;
}

std::vector<std::int64_t> Sampler::slice(const Share& share) const {
  require(share.piece >= 0 && share.piece < share.pieces && batch_ % share.pieces == 0, "data: piece ", share.piece,
          " of ", share.pieces, " of a batch of ", batch_, " sequences");
  return draw(begin_of(share), batch_ / share.pieces);
}

std::int64_t Sampler::place(const Share& share) const {
  return checked_add(checked_multiply(position_.epoch, windows_), position_.index + begin_of(share));
}

}  // namespace fsdp::data
