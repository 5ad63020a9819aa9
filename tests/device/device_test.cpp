// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/device.hpp>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::device {
namespace {

struct NoOperations {
  static constexpr std::string_view name = "none";
  static constexpr bool counts_only = true;
  static constexpr bool asynchronous = true;
  static constexpr bool overlaps = true;
  static constexpr bool host_memory = false;
  using Arena = device::Arena<NoOperations>;
  using Event = ImmediateEvent;
  using Queue = ImmediateQueue;
  struct Stream : Queue {
    Arena& arena() const;
    int threads() const;
    Counters counters;
  };
  static std::byte* allocate(std::int64_t);
  static std::byte* unbacked(std::int64_t);
  static void deallocate(std::byte*, std::int64_t);
  static void move(Queue&, const std::byte*, std::byte*, std::int64_t);
  static void poison(std::byte*, std::int64_t);
  static void unpoison(std::byte*, std::int64_t);
};

static_assert(check_device<Cpu>() && check_device<Meta>());
static_assert(Device<Cpu> && Device<Meta>);
static_assert(detail::Named<NoOperations> && detail::Memory<NoOperations> && detail::HasArena<NoOperations> &&
              detail::HasQueue<NoOperations> && detail::HasStream<NoOperations>);
static_assert(!detail::MovesForPeers<NoOperations> && detail::MovesForPeers<Cpu>);  // only devices with queues need it
static_assert(!Device<NoOperations> && !Device<int>);
static_assert(Has<Cpu, Add<float>> && !Has<Cpu, Add<f16>> && !Has<NoOperations, Add<float>>);
static_assert(Has<Meta, Add<float>> && Has<MetaOf<Cuda>, Matmul<f16, float>> && !Has<Cpu, Matmul<f16, float>>);

TEST(Arena, BothEndsGrowTowardsEachOtherAndReleaseInLifoOrder) {
  Ledger ledger;
  Cpu::Arena arena(ledger, 1024);
  const auto low = arena.mark(Cpu::Arena::End::low);
  const Tensor<float> kept = arena.allocate<float>(Cpu::Arena::End::low, {3});
  {
    Cpu::Arena::Frame frame(arena);
    const Tensor<float> first = frame.allocate<float>({16});
    const Tensor<float> second = frame.allocate<float>({1}, MemoryKind::scratch);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.data()) % alignment, 0u);
    EXPECT_EQ(first.data() - second.data(), 16);
    kept[2] = first[15] = second[0] = 1;
    EXPECT_EQ(arena.used(), 192);
  }
  EXPECT_EQ(arena.used(), 64);
  EXPECT_EQ(arena.peak(), 192);
  EXPECT_EQ(arena.peak_scratch(), 64);
  arena.release(Cpu::Arena::End::low, low);
  EXPECT_EQ(arena.used(), 0);
  EXPECT_THROW(arena.allocate<float>(Cpu::Arena::End::high, {257}), MemoryError);
  EXPECT_EQ(ledger.bytes(), 1024);
}

TEST(Cpu, AllocatesZeroedAlignedMemoryAndReleasesItInTheLedger) {
  Ledger ledger;
  {
    const Block<Cpu> block(ledger, MemoryKind::weights, 40 << 20);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % alignment, 0u);
    for (std::int64_t at = 0; at < block.bytes(); at += 4093) ASSERT_EQ(block.data()[at], std::byte{0});
    const Block<Cpu> empty(ledger, MemoryKind::weights, 0);
    EXPECT_EQ(ledger.bytes(), 40 << 20);
  }
  EXPECT_EQ(ledger.bytes(), 0);
  EXPECT_EQ(ledger.allocations(), 2);
  EXPECT_THROW(Cpu::allocate(std::int64_t{1} << 60), MemoryError);
}

TEST(Cpu, HasAtLeastOneCoreAndRefusesAStreamWithoutThreads) {
  EXPECT_GE(available_cores(), 1);
  Cpu::Arena arena;
  EXPECT_THROW(Cpu::Stream(arena, 0), InputError);
}

}  // namespace
}  // namespace fsdp::device
