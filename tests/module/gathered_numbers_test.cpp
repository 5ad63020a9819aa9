// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/gathered_numbers.hpp>

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp {
namespace {

using Comm = comm::Threads<device::Cpu>;

/// Every rank sees what number(rank, i) gives for all ranks, twice.
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
      comm::barrier(communicator);  // before the numbers are written again
    }
  });
}

TEST(GatheredNumbers, AreThoseOfEveryRankInRankOrder) {
  for (const int ranks : {1, 3}) {
    expect_gathered<double>(ranks, [](int rank, std::int64_t i) { return 0.1 * rank + static_cast<double>(i); });
    // Integers that double does not hold.
    expect_gathered<std::int64_t>(
        ranks, [](int rank, std::int64_t i) { return std::numeric_limits<std::int64_t>::max() - 10 * rank - i; });
  }
}

}  // namespace
}  // namespace fsdp
