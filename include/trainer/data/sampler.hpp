// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses the windows of each step and of each piece of a step, from one source or a weighted mixture of sources. A
/// step's data do not depend on the number of ranks. tessera/fsdp/sharding/problem.hpp assigns pieces to ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/fsdp/core/has_member.hpp>

namespace fsdp::data {

/// A pseudo-random permutation of [0, size), computed entry by entry: a Feistel network over the next power of four,
/// applied again until the value is below `size` (cycle walking). The same on every machine and compiler.
class Permutation {
 public:
  Permutation(std::uint64_t seed, std::uint64_t number, std::int64_t size);  ///< the `number`-th permutation of a seed
  std::int64_t operator()(std::int64_t i) const;                             ///< entry i, for i in [0, size)

 private:
  std::uint64_t key_;
  std::int64_t size_;
  int half_bits_;
};

/// A position in the data.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t index = 0;  ///< number of windows of this epoch that were already used

  friend bool operator==(const Position&, const Position&) = default;
};

/// A part of a step: piece v of V is sequences [v B / V, (v + 1) B / V) of the step's B.
struct Share {
  std::int64_t piece = 0, pieces = 1;
};

/// Throws an InputError with the nearest valid sizes unless `batch` is a multiple of groups x micro-batches. Each group
/// consists of `ranks_per_sequence` ranks that share their sequences.
void check_batch(std::int64_t batch, std::int64_t groups, std::int64_t micro_batches,
                 std::int64_t ranks_per_sequence = 1);
/// The same unless `batch` is a multiple of the number of pieces that a strategy cuts each step into (Reproducible).
void check_pieces(std::int64_t batch, std::int64_t pieces);

/// Returns the n-th sample of a run. Used by sources that define their own order, such as a weighted mixture.
using Order = std::function<std::int64_t(std::int64_t n)>;

/// Draws the n-th window of a run: a pure function of seed, weights and n. Among the first n windows, the count of
/// source i differs from n x its share by at most the number of sources: each source takes its quota of those that are
/// left. A source whose windows are all used starts again with a new permutation.
class Mixture {
 public:
  /// A source of windows.
  struct Source {
    double weight = 1;         ///< weight relative to the weights of the other sources
    std::int64_t windows = 0;  ///< number of windows, at least 1
  };
  /// A window of a source.
  struct Window {
    std::size_t source = 0;
    std::int64_t window = 0;

    friend bool operator==(const Window&, const Window&) = default;
  };

  /// Throws LogicError if there are no sources, or one has no windows or no positive weight.
  Mixture(std::uint64_t seed, std::vector<Source> sources);
  Window operator()(std::int64_t n) const;  ///< the n-th window, counted from 0

 private:
  std::uint64_t seed_;
  std::vector<Source> sources_;
  std::vector<std::uint64_t> quotas_;  // quota of the windows that earlier sources leave, in units of 2^-32
};

/// Draws batches without replacement within each epoch, in a new permutation for each epoch; a batch can span two
/// epochs. With an Order, draws samples in that order; an epoch is then the next `windows` samples of it.
class Sampler {
 public:
  /// Draws `batch` of `windows` windows per step; both must be at least 1.
  Sampler(std::uint64_t seed, std::int64_t windows, std::int64_t batch, Order order = {});

  Position position() const { return position_; }  ///< the position where the next step begins
  void restore(Position position);                 ///< throws InputError if the position is not inside an epoch
  void advance();                                  ///< moves to the next step

  std::vector<std::int64_t> batch() const { return draw(0, batch_); }  ///< windows of the current step, in order
  /// The share's part of batch(), whose size must be a multiple of the number of pieces.
  std::vector<std::int64_t> slice(const Share& share) const;
  /// Index of the share's first window among all windows that a run draws.
  std::int64_t place(const Share& share) const;
  std::uint64_t seed() const { return seed_; }  ///< the seed of the constructor

 private:
  std::vector<std::int64_t> draw(std::int64_t begin, std::int64_t count) const;
  std::int64_t begin_of(const Share& share) const { return share.piece * (batch_ / share.pieces); }

  std::uint64_t seed_;
  std::int64_t windows_, batch_;
  Order order_;
  Position position_;
};

namespace detail {
FSDP_HAS_MEMBER(order)
}  // namespace detail

/// Returns a sampler of a source's training samples; it uses the source's own order if the source defines one.
template <class Source>
Sampler sampler_of(const Source& source, std::uint64_t seed, std::int64_t batch) {
  static_assert(
      !detail::has_order<Source>() || requires { Order(source.order(seed)); },
      "fsdp: a source of batches has an order that is no data::Order order(std::uint64_t seed) const, so that samples "
      "would be drawn evenly");
  if constexpr (detail::has_order<Source>())
    return Sampler(seed, source.training(), batch, source.order(seed));
  else
    return Sampler(seed, source.training(), batch);
}

}  // namespace fsdp::data
