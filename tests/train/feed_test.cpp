// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/feed.hpp>

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

#include "data/numbered_source.hpp"

namespace fsdp::train {
namespace {

using test::NumberedSource;
using Comm = comm::Threads<>;

constexpr std::int64_t batch = 24;
constexpr int steps = 5;  // the last spans two epochs

/// The number of ranks of a run, how many share each sequence, and how a step is cut.
struct Run {
  int ranks = 1, sharing = 1, micro_batches = 1, pieces = 0;

  int groups() const { return ranks / sharing; }
  int own_micro_batches() const { return pieces > 0 ? sharding::micro_batches_of(pieces, groups()) : micro_batches; }
  std::int64_t sequences() const { return batch / (pieces > 0 ? pieces : groups() * micro_batches); }
};

/// A step on one rank: the first token of each sample of its micro-batches, the first rows of their random numbers, and
/// the counts of all ranks.
struct SeenStep {
  std::vector<std::vector<std::int64_t>> samples;
  std::vector<std::int64_t> first_rows;
  BatchCounts counts;

  friend bool operator==(const SeenStep&, const SeenStep&) = default;
};

std::vector<std::vector<SeenStep>> seen_by_ranks(const Run& run, const NumberedSource& source) {
  std::vector<std::vector<SeenStep>> all(static_cast<std::size_t>(run.ranks));
  Comm::run(run.ranks, {}, [&](Comm& communicator) {
    device::Ledger ledger;
    CountExchange<Comm> exchange(communicator, ledger);
    const comm::CatchSignals signals;
    Feed<Comm, NumberedSource> feed(sequence_group(communicator.rank(), run.ranks, run.sharing), exchange, source,
                                    data::Sampler(3, source.training(), batch), run.sequences(),
                                    run.own_micro_batches(), run.pieces, signals);
    for (int step = 0; step < steps; ++step) {
      const auto taken = feed.take(step + 1 < steps);
      SeenStep seen{.samples = {}, .first_rows = {}, .counts = taken.counts};
      for (const TokenBatch& each : taken.micro_batches) {
        seen.first_rows.push_back(each.noise.first_row);
        std::vector<std::int64_t>& samples = seen.samples.emplace_back();
        for (std::int64_t i = 0; i < each.sequences; ++i) samples.push_back(each.tokens[i * source.length]);
      }
      all[static_cast<std::size_t>(communicator.rank())].push_back(seen);
    }
  });
  return all;
}

/// The samples are read in the sampler's order, micro-batch by micro-batch over all groups; all ranks of a group read
/// the same samples.
void expect_order(const Run& run) {
  SCOPED_TRACE(message(run.ranks, " ranks, ", run.sharing, " share, ", run.micro_batches, " micro-batches, ",
                       run.pieces, " pieces"));
  const NumberedSource source;
  const auto all = seen_by_ranks(run, source);
  data::Sampler sampler(3, source.training(), batch);
  for (std::size_t step = 0; step < steps; ++step, sampler.advance()) {
    std::vector<std::int64_t> read;
    std::int64_t targets = 0;
    for (int m = 0; m < run.own_micro_batches(); ++m)
      for (int group = 0; group < run.groups(); ++group) {
        const SeenStep& seen = all[static_cast<std::size_t>(group * run.sharing)][step];
        if (run.pieces > 0 && sharding::piece_of(m, group, run.groups()) >= run.pieces) {
          EXPECT_EQ(std::ssize(seen.samples), m);
          continue;
        }
        const std::int64_t before = static_cast<std::int64_t>(step) * batch + std::ssize(read);
        EXPECT_EQ(seen.first_rows[static_cast<std::size_t>(m)], before * source.length);
        const std::vector<std::int64_t>& samples = seen.samples[static_cast<std::size_t>(m)];
        read.insert(read.end(), samples.begin(), samples.end());
      }
    EXPECT_EQ(read, sampler.batch());
    for (const std::int64_t sample : read) targets += source.length - sample % source.length;
    for (int rank = 0; rank < run.ranks; ++rank) {
      const SeenStep& seen = all[static_cast<std::size_t>(rank)][step];
      EXPECT_EQ(seen, all[static_cast<std::size_t>(rank / run.sharing * run.sharing)][step]) << "rank " << rank;
      EXPECT_EQ(seen.counts, (BatchCounts{.valid_targets = targets, .squares = batch * source.length * source.length}));
    }
  }
}

TEST(Feed, SampleOrderDoesNotDependOnRanksPerSequence) {
  for (const int ranks : {2, 4})
    for (const int sharing : {1, 2, 4}) {
      if (sharing > ranks) continue;
      for (const int micro_batches : {1, 3})
        expect_order({.ranks = ranks, .sharing = sharing, .micro_batches = micro_batches});
      for (const int pieces : {3, 8}) expect_order({.ranks = ranks, .sharing = sharing, .pieces = pieces});
    }
}

}  // namespace
}  // namespace fsdp::train
