// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which windows a step uses, and which of them are a rank's: the same data whatever the number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fsdp::data {

/// A permutation of [0, size) computed entry by entry: a Feistel network over the next power of four, walked until the
/// value falls inside. The same on every machine and compiler.
class Permutation {
 public:
  /// The `number`-th of a seed.
  Permutation(std::uint64_t seed, std::uint64_t number, std::int64_t size);
  /// Where entry i goes.
  std::int64_t operator()(std::int64_t i) const;

 private:
  std::uint64_t key_;
  std::int64_t size_;
  int half_bits_;
};

/// How far the data were read.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t index = 0;  ///< windows of this epoch that were used

  friend bool operator==(const Position&, const Position&) = default;
};

/// One rank's part of one micro-batch.
struct Share {
  std::int64_t rank = 0, ranks = 1;
  std::int64_t micro_batch = 0, micro_batches = 1;
};

/// Throws InputError, naming the nearest sizes that work, unless the batch divides over ranks x micro-batches.
void check_batch(std::int64_t batch, std::int64_t ranks, std::int64_t micro_batches);

/// The sample at the n-th place of a run: of a source that says itself what follows what, such as several by weights.
using Order = std::function<std::int64_t(std::int64_t n)>;

/// Draws batches without replacement in each epoch; a batch that reaches an epoch's end goes on in the next one. With
/// an Order it is the order that says what is drawn, and an epoch is so many places of it.
class Sampler {
 public:
  /// Of so many windows, `batch` at a step; at least one of each.
  Sampler(std::uint64_t seed, std::int64_t windows, std::int64_t batch, Order order = {});

  /// Where the next step begins.
  Position position() const { return position_; }
  void restore(Position position);  ///< throws InputError where the position is not inside an epoch
  void advance();                   ///< to the next step

  std::vector<std::int64_t> batch() const;                    ///< windows of this step, in order
  std::vector<std::int64_t> slice(const Share& share) const;  ///< micro-batches, then ranks, cut the batch in order
  std::int64_t place(const Share& share) const;               ///< of the first of them, among all that a run draws
  /// As it was given.
  std::uint64_t seed() const { return seed_; }

 private:
  std::vector<std::int64_t> draw(std::int64_t begin, std::int64_t count) const;
  std::int64_t begin_of(const Share& share) const;

  std::uint64_t seed_;
  std::int64_t windows_, batch_;
  Order order_;
  Position position_;
};

/// The sampler of a source's training samples, by the source's own order where it has one.
template <class Source>
Sampler sampler_of(const Source& source, std::uint64_t seed, std::int64_t batch) {
  if constexpr (requires { Order(source.order(seed)); })
    return Sampler(seed, source.training(), batch, source.order(seed));
  else
    return Sampler(seed, source.training(), batch);
}

}  // namespace fsdp::data
