// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/distributed_buffer.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <tessera/comm/self.hpp>
#include <tessera/comm/threads.hpp>

namespace fsdp::buffer {
namespace {

using Comm = comm::Threads<>;
template <class P, class T = float>
using Buffer = DistributedBuffer<T, device::Cpu, P>;

constexpr comm::Label label{"test", 0};
const std::vector<Shape> shapes = {{5, 3}, {1}, {9, 11}, {2, 64}};

/// The contribution of rank `rank` to element `i` of tensor `tensor`. Sums of these values are inexact.
float value(int rank, std::size_t tensor, std::int64_t i) {
  return 0.1f * static_cast<float>(rank + 1) + 1.7f * static_cast<float>(tensor) +
         0.013f * static_cast<float>(i * (rank + 2));
}

/// A full buffer with the contributions of `rank`, and `pad` in the padding.
std::vector<float> contribution(const Layout& layout, int rank, float pad) {
  std::vector<float> full(static_cast<std::size_t>(layout.full_size), pad);
  for (std::size_t t = 0; t < layout.shapes.size(); ++t)
    for (std::int64_t i = 0; i < layout.shapes[t].numel(); ++i)
      full[static_cast<std::size_t>(layout.offsets[t] + i)] = value(rank, t, i);
  return full;
}

/// The sum over ranks in rank order, in float, of contributions rounded to Wire, added to `before`. The default of -0
/// changes no bit of the sum.
template <class Wire = float>
float sum(int ranks, std::size_t tensor, std::int64_t i, float before = -0.0f) {
  for (int rank = 0; rank < ranks; ++rank) before += static_cast<float>(Wire(value(rank, tensor, i)));
  return before;
}

template <class F>
void on_ranks_1_to_4(F f) {
  for (const int ranks : {1, 2, 3, 4}) Comm::run(ranks, {.checks = true}, [&](Comm& c) { f(c); });
}

template <class L>
Layout layout_of(int ranks) {
  TensorGroup group;
  for (const Shape& shape : shapes) group.tensors.push_back({.shape = shape, .work = shape.numel()});
  return L{}.build(std::span<const TensorGroup>(&group, 1), ranks).front();
}

/// Compares every element of a full buffer, or of a rank's shard, with expected(tensor, element).
/// @{
template <class Expected>
void expect_whole(const Buffer<Replicate>& found, const Expected& expected) {
  for (const auto& [t, shape] : ranges::views::enumerate(shapes)) {
    const float* const data = found.tensor(static_cast<std::int64_t>(t)).data();
    for (std::int64_t i = 0; i < shape.numel(); ++i) ASSERT_EQ(data[i], expected(t, i)) << "tensor " << t;
  }
}
template <class Expected>
void expect_shard(const Buffer<Shard>& found, const Expected& expected) {
  for (const TensorRange& part : found.ranges())
    for (std::int64_t i = 0; i < part.count; ++i)
      ASSERT_EQ(found.range(part)[i], expected(static_cast<std::size_t>(part.tensor), part.begin + i));
}
/// @}

template <class L>
void gathers_what_each_rank_holds() {
  on_ranks_1_to_4([](Comm& c) {
    SCOPED_TRACE(c.size());
    const Layout layout = layout_of<L>(c.size());
    std::vector<float> local(static_cast<std::size_t>(layout.local_size(c.rank())), 0.0f);
    std::vector<float> full(static_cast<std::size_t>(layout.full_size), -1.0f);
    const Buffer<Shard> from(layout, c.rank(), local.data());
    const Buffer<Replicate> to(layout, c.rank(), full.data());
    for (const TensorRange& part : from.ranges())
      for (std::int64_t i = 0; i < part.count; ++i)
        from.range(part)[i] = value(7, static_cast<std::size_t>(part.tensor), part.begin + i);
    redistribute(c, from, to, label).wait();
    expect_whole(to, [](std::size_t t, std::int64_t i) { return value(7, t, i); });
  });
}

template <class L, class Wire>
void sums_each_ranks_part() {
  on_ranks_1_to_4([](Comm& c) {
    const Layout layout = layout_of<L>(c.size());
    std::vector<float> full = contribution(layout, c.rank(), 0.0f);
    std::vector<float> local(static_cast<std::size_t>(layout.local_size(c.rank())), 0.25f);
    const Buffer<Shard> to(layout, c.rank(), local.data());
    for (const auto& [write, before] : {std::pair(Write::accumulate, 0.25f), std::pair(Write::overwrite, -0.0f)}) {
      redistribute<Wire>(c, Buffer<Partial>(layout, c.rank(), full.data()), to, write, label).wait();
      expect_shard(to, [&, start = before](std::size_t t, std::int64_t i) { return sum<Wire>(c.size(), t, i, start); });
    }
  });
}

template <class L>
void sums_everything_on_every_rank() {
  on_ranks_1_to_4([](Comm& c) {
    SCOPED_TRACE(c.size());
    const Layout layout = layout_of<L>(c.size());
    std::vector<float> full = contribution(layout, c.rank(), 0.0f);
    const Buffer<Replicate> to(layout, c.rank(), full.data());
    redistribute<float>(c, Buffer<Partial>(layout, c.rank(), full.data()), to, label).wait();
    expect_whole(to, [&](std::size_t t, std::int64_t i) { return sum(c.size(), t, i); });
  });
}

TEST(Redistribute, ShardToReplicateAllGathers) {
  gathers_what_each_rank_holds<PerParameter>();
  gathers_what_each_rank_holds<Flat>();
  gathers_what_each_rank_holds<Owned>();
  gathers_what_each_rank_holds<Blocks>();
}

TEST(Redistribute, PartialToShardSumsBitIdenticallyInRankOrder) {
  sums_each_ranks_part<PerParameter, float>();
  sums_each_ranks_part<Flat, float>();
  sums_each_ranks_part<Owned, float>();
  sums_each_ranks_part<Blocks, float>();
}

TEST(Redistribute, PartialToShardRoundsContributionsToTheWireType) { sums_each_ranks_part<PerParameter, bf16>(); }

TEST(Redistribute, PartialToReplicateSumsBitIdenticallyInRankOrder) {
  sums_everything_on_every_rank<PerParameter>();
  sums_everything_on_every_rank<Flat>();
  sums_everything_on_every_rank<Owned>();
  sums_everything_on_every_rank<Blocks>();
}

TEST(Redistribute, ReplicateToShardIsAViewOfThisRanksShard) {
  on_ranks_1_to_4([](Comm& c) {
    const Layout layout = Flat::of_group(shapes, c.size());
    std::vector<float> full = contribution(layout, 3, 0.0f);
    const Buffer<Replicate> from(layout, c.rank(), full.data());

    const Buffer<Shard> part = redistribute(from);

    EXPECT_EQ(part.data(), full.data() + layout.local_size(0) * c.rank());
    EXPECT_EQ(part.size(), layout.local_size(c.rank()));
    for (const TensorRange& range : part.ranges())
      EXPECT_EQ(part.range(range)[0], value(3, static_cast<std::size_t>(range.tensor), range.begin));
  });
}

TEST(Redistribute, PerParameterReplicateToShardThrowsBecauseItIsNotAView) {
  comm::Self<> alone;
  const Layout layout = PerParameter::of_group(shapes, 1);
  std::vector<float> full(static_cast<std::size_t>(layout.full_size));
  EXPECT_THROW(redistribute(Buffer<Replicate>(layout, 0, full.data())), LogicError);
}

TEST(DistributedBuffer, APartialBufferThrowsIfUsedAfterItsReduction) {
  Comm::run(2, {}, [](Comm& c) {
    const Layout layout = PerParameter::of_group(shapes, c.size());
    std::vector<float> full = contribution(layout, c.rank(), 0.0f);
    std::vector<float> local(static_cast<std::size_t>(layout.local_size(c.rank())));
    Buffer<Partial> from(layout, c.rank(), full.data());
    EXPECT_TRUE(from.placed());

    redistribute<float>(c, std::move(from), Buffer<Shard>(layout, c.rank(), local.data()), Write::overwrite, label)
        .wait();

    EXPECT_FALSE(from.placed());
    EXPECT_THROW((void)from.tensor(0), LogicError);
    EXPECT_THROW((void)from.data(), LogicError);
  });
}

TEST(DistributedBuffer, ABufferWithoutMemoryThrows) { EXPECT_THROW((void)Buffer<Replicate>().data(), LogicError); }

TEST(DistributedBuffer, AnAllReduceThatIsNotInPlaceThrows) {
  comm::Self<> alone;
  const Layout layout = Flat::of_group(shapes, 1);
  std::vector<float> from = contribution(layout, 0, 0.0f), to(from.size());
  EXPECT_THROW((void)redistribute<float>(alone, Buffer<Partial>(layout, 0, from.data()),
                                         Buffer<Replicate>(layout, 0, to.data()), label),
               LogicError);
}

template <class T>
concept HasTensor = requires(T buffer) {
  buffer.tensor(0);
};
static_assert(HasTensor<Buffer<Replicate>> && HasTensor<Buffer<Partial>> && !HasTensor<Buffer<Shard>>);
static_assert(!Placement<int>);

}  // namespace
}  // namespace fsdp::buffer
