// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/batches.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

#include "data/numbered_source.hpp"

namespace fsdp::train {
namespace {

using test::NumberedSource;

/// Returns the first token of each sample of a micro-batch and the index of its first row of random numbers.
std::pair<std::vector<std::int32_t>, std::int64_t> content_of(const TokenBatch& batch, std::int64_t length) {
  std::vector<std::int32_t> samples;
  for (const auto& tokens :
       ranges::views::chunk(std::span(batch.tokens.data(), static_cast<std::size_t>(batch.tokens.numel())), length))
    samples.push_back(*tokens.begin());
  EXPECT_EQ(std::ssize(samples), batch.sequences);
  return {samples, batch.noise.first_row};
}

TEST(Batches, APieceHasTheSameSamplesAndNoiseOnAnyNumberOfRanks) {
  constexpr int pieces = 8;
  constexpr std::int64_t batch = 16;
  const NumberedSource source;
  data::Sampler sampler(3, source.training(), batch);
  for (int step = 0; step < 8; ++step, sampler.advance()) {  // the seventh spans two epochs
    std::map<int, std::pair<std::vector<std::int32_t>, std::int64_t>> expected;
    for (const int ranks : {1, 2, 3, 5, 8, 11}) {
      BatchCounts counts;
      int found = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        Batches<NumberedSource> batches(source, batch / pieces, sharding::micro_batches_of(pieces, ranks),
                                        device::host_memory<device::Cpu>);
        batches.draw(sampler, rank, ranks, pieces);
        counts += batches.counts();
        ASSERT_EQ(std::ssize(batches.micro_batches()), sharding::pieces_of_rank(pieces, rank, ranks));
        found += static_cast<int>(std::ssize(batches.micro_batches()));
        for (const auto& [m, micro_batch] : ranges::views::enumerate(batches.micro_batches())) {
          const auto content = content_of(micro_batch, source.length);
          const auto [piece, first] = expected.emplace(sharding::piece_of(static_cast<int>(m), rank, ranks), content);
          EXPECT_EQ(piece->second, content) << "piece " << piece->first << " on " << ranks << " ranks";
        }
      }
      EXPECT_EQ(found, pieces);
      Batches<NumberedSource> whole(source, batch, 1, device::host_memory<device::Cpu>);
      whole.draw(sampler, 0, 1);
      EXPECT_EQ(counts.valid_targets, whole.counts().valid_targets) << ranks << " ranks";
    }
  }
}

/// Appends the samples of a micro-batch; the first row stays that of the first micro-batch.
void append(std::pair<std::vector<std::int32_t>, std::int64_t>& all,
            const std::pair<std::vector<std::int32_t>, std::int64_t>& next) {
  if (all.first.empty()) all.second = next.second;
  all.first.insert(all.first.end(), next.first.begin(), next.first.end());
}

TEST(Batches, AGroupReadsTheSamplesThatItsRanksWouldReadUnsharded) {
  constexpr std::int64_t batch = 24;
  const NumberedSource source;
  data::Sampler sampler(3, source.training(), batch);
  for (int step = 0; step < 5; ++step, sampler.advance())  // the last spans two epochs
    for (const int ranks : {2, 4})
      for (const int micro_batches : {1, 3})
        for (const int sharing : {1, 2, 4}) {
          if (sharing > ranks) continue;
          SCOPED_TRACE(message(step, ": ", ranks, " ranks, ", micro_batches, " micro-batches, ", sharing, " share"));
          const auto drawn = [&](int rank, int of) {
            Batches<NumberedSource> own(source, batch / (of * micro_batches), micro_batches,
                                        device::host_memory<device::Cpu>);
            own.draw(sampler, rank, of);
            return own;
          };
          for (int rank = 0; rank < ranks; rank += sharing) {
            const SequenceGroup group = sequence_group(rank, ranks, sharing);
            const Batches<NumberedSource> shared = drawn(group.index, group.count);
            BatchCounts of_group, of_ranks;
            std::vector<std::pair<std::vector<std::int32_t>, std::int64_t>> apart(
                static_cast<std::size_t>(micro_batches));
            for (int member = 0; member < sharing; ++member) {
              of_group += shared.counts(member, sharing);
              const Batches<NumberedSource> own = drawn(rank + member, ranks);
              of_ranks += own.counts();
              for (const auto& [all, next] : ranges::views::zip(apart, own.micro_batches()))
                append(all, content_of(next, source.length));
            }
            EXPECT_EQ(of_group, of_ranks);
            ASSERT_EQ(shared.micro_batches().size(), apart.size());
            for (const auto& [found, expected] : ranges::views::zip(shared.micro_batches(), apart))
              EXPECT_EQ(content_of(found, source.length), expected);
          }
        }
}

TEST(Batches, DrawingOnePieceMatchesTheDrawOfItsRank) {
  constexpr int pieces = 4, ranks = 3;
  const NumberedSource source;
  const data::Sampler sampler(3, source.training(), 12);
  Batches<NumberedSource> alone(source, 3, 1, device::host_memory<device::Cpu>);
  for (const int rank : {0, 1, 2}) {
    Batches<NumberedSource> own(source, 3, 2, device::host_memory<device::Cpu>);
    own.draw(sampler, rank, ranks, pieces);
    for (const auto& [m, micro_batch] : ranges::views::enumerate(own.micro_batches())) {
      const int piece = sharding::piece_of(static_cast<int>(m), rank, ranks);
      EXPECT_EQ(content_of(alone.draw_piece(sampler, piece, pieces), source.length),
                content_of(micro_batch, source.length));
    }
  }
}

TEST(Batches, WithoutPiecesThereIsOneBatchPerMicroBatchAndRank) {
  const NumberedSource source;
  const data::Sampler sampler(3, source.training(), 12);
  for (const int rank : {0, 1, 2}) {
    Batches<NumberedSource> batches(source, 2, 2, device::host_memory<device::Cpu>);
    batches.draw(sampler, rank, 3);
    ASSERT_EQ(std::ssize(batches.micro_batches()), 2);
    for (const int m : {0, 1}) {
      const std::size_t first = static_cast<std::size_t>((m * 3 + rank) * 2);
      const std::vector<std::int64_t> all = sampler.batch();
      EXPECT_EQ(content_of(batches.micro_batches()[static_cast<std::size_t>(m)], source.length).first,
                (std::vector<std::int32_t>{static_cast<std::int32_t>(all[first]),
                                           static_cast<std::int32_t>(all[first + 1])}));
    }
  }
}

}  // namespace
}  // namespace fsdp::train
