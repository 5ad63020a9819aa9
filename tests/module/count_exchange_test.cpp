// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/module/gathered_numbers.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>

namespace fsdp {
namespace {

/// The result or error message of every rank if the ranks in `refusing` refuse their data.
std::vector<std::string> complaints(int ranks, const std::vector<int>& refusing) {
  using Comm = comm::Threads<device::Cpu>;
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  Comm::run(ranks, {}, [&](Comm& communicator) {
    const int rank = communicator.rank();
    try {
      device::Ledger ledger;
      CountExchange<Comm> exchange(communicator, ledger);
      exchange.start([&]() -> BatchCounts {
        for (const int bad : refusing)
          if (rank == bad) throw InputError("window " + std::string(static_cast<std::size_t>(10 * rank), 'x'));
        return {.valid_targets = rank + 1, .squares = 10 * rank};
      });
      const BatchCounts counts = exchange.finish();
      told[static_cast<std::size_t>(rank)] = message(counts.valid_targets, " and ", counts.squares);
    } catch (const InputError& error) {
      told[static_cast<std::size_t>(rank)] = error.what();
    }
    EXPECT_EQ(communicator.monitor().totals.traffic.calls(), (ranks > 1 ? 1 : 0) + (refusing.empty() ? 0 : 2));
  });
  return told;
}

TEST(BatchCounts, AreSummedOverRanks) {
  EXPECT_EQ(complaints(1, {}), (std::vector<std::string>{"1 and 0"}));
  EXPECT_EQ(complaints(3, {}), (std::vector<std::string>(3, "6 and 30")));
}

TEST(BatchCounts, AnErrorOfOneRankIsThrownOnAllRanks) {
  EXPECT_EQ(complaints(1, {0}), (std::vector<std::string>{"window "}));
  EXPECT_EQ(complaints(3, {2}), (std::vector<std::string>(3, "window " + std::string(20, 'x'))));
  EXPECT_EQ(complaints(3, {1, 2}), (std::vector<std::string>(3, "window " + std::string(10, 'x'))));
}

/// A user-defined batch has invalid counts on one rank. The mean loss would be divided by them.
TEST(BatchCounts, NegativeCountsOfOneRankAreRefusedOnAllRanks) {
  using Comm = comm::Threads<device::Cpu>;
  for (const BatchCounts& counts :
       {BatchCounts{.valid_targets = -5, .squares = 1}, {.valid_targets = 1, .squares = -1}})
    Comm::run(2, {}, [&](Comm& communicator) {
      device::Ledger ledger;
      CountExchange<Comm> exchange(communicator, ledger);
      exchange.start([&] { return communicator.rank() == 1 ? counts : BatchCounts{.valid_targets = 7}; });
      EXPECT_EQ(test::input_error_of([&] { exchange.finish(); }),
                message("batch: counts() of a rank's micro-batches give ", counts.valid_targets, " valid targets and ",
                        counts.squares, " as the sum of squares; they are at least 0"));
    });
}

TEST(BatchCounts, CarrySignalRequestsOfAnyRankToAllRanks) {
  using Comm = comm::Threads<device::Cpu>;
  Comm::run(3, {}, [&](Comm& communicator) {
    device::Ledger ledger;
    CountExchange<Comm> exchange(communicator, ledger);
    const auto told = [&](const comm::SignalRequests& mine) {
      exchange.start([] { return BatchCounts{}; }, mine);
      exchange.finish();
      return exchange.asked();
    };
    EXPECT_EQ(told({}), comm::SignalRequests{});
    EXPECT_EQ(told({.stop = communicator.rank() == 1 ? 15 : 0, .saves = communicator.rank()}),
              (comm::SignalRequests{.stop = 15, .saves = 2}));
    EXPECT_EQ(told({}), comm::SignalRequests{});
  });
}

/// The error message for a micro-batch of two sequences of four tokens with a vocabulary of 10; empty if it is valid.
std::string complaint(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
                      const std::vector<std::int64_t>& documents) {
  const TokenBatch batch{.tokens = {tokens.data(), {std::ssize(tokens)}},
                         .targets = {targets.data(), {std::ssize(targets)}},
                         .sequences = 2,
                         .documents = documents};
  return test::error_of<InputError>([&] { batch.validate(4, 10); });
}

TEST(TokenBatch, RefusesTokensOutsideTheVocabularyAndInvalidDocuments) {
  const std::vector<std::int32_t> good = {0, 1, 2, 3, 9, 5, 6, 7};
  auto too_large = good, negative = good;
  too_large[5] = 10;
  negative[2] = -1;
  EXPECT_EQ(complaint(good, good, {}), "");
  EXPECT_EQ(complaint(good, negative, {0, 3, 4, 8}), "");
  test::expect_parts(complaint(too_large, good, {}), {"token 5 is 10"});
  test::expect_parts(complaint(negative, good, {}), {"token 2 is -1"});
  test::expect_parts(complaint(good, too_large, {}), {"target 5 is 10, outside the vocabulary of 10"});
  test::expect_parts(complaint(good, good, {0, 5, 8}), {"over the end of a sequence"});
}

TEST(BatchCounts, CountValidTargetsAndDocuments) {
  const std::vector<std::int32_t> tokens(8, 1), targets = {1, -1, 1, 1, -5, -1, 0, 1};
  const std::vector<std::int64_t> documents = {0, 1, 4, 4, 8};
  TokenBatch batch{.tokens = {tokens.data(), {8}}, .targets = {targets.data(), {8}}, .sequences = 2};
  EXPECT_EQ(batch.counts(), (BatchCounts{.valid_targets = 5, .squares = 32}));
  batch.documents = documents;
  EXPECT_EQ(batch.counts(), (BatchCounts{.valid_targets = 5, .squares = 1 + 9 + 16}));
}

using Comm = comm::Threads<device::Cpu>;

/// Expects that every rank receives number(rank, i) of all ranks, in two rounds.
template <class T, class Number>
void expect_gathered(int ranks, const Number& number) {
  Comm::run(ranks, {}, [&](Comm& communicator) {
    device::Ledger ledger;
    device::Cpu::Queue queue("numbers");
    GatheredNumbers<Comm, T> numbers(communicator, ledger, 3);
    for (const int times : {1, 2}) {
      for (std::int64_t i = 0; i < 3; ++i) numbers.own()[i] = number(communicator.rank(), times * i);
      const Tensor<const T> all = numbers.gather(queue, {"numbers"});
      EXPECT_EQ(all.shape(), (Shape{ranks, 3}));
      for (int rank = 0; rank < ranks; ++rank)
        for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(all.row(rank)[i], number(rank, times * i));
      comm::barrier(communicator);  // all ranks have read the numbers before they are overwritten
    }
  });
}

TEST(GatheredNumbers, AreInRankOrderOnEveryRank) {
  for (const int ranks : {1, 3}) {
    expect_gathered<double>(ranks, [](int rank, std::int64_t i) { return 0.1 * rank + static_cast<double>(i); });
    // Integers that double cannot represent exactly.
    expect_gathered<std::int64_t>(
        ranks, [](int rank, std::int64_t i) { return std::numeric_limits<std::int64_t>::max() - 10 * rank - i; });
  }
}

}  // namespace
}  // namespace fsdp
