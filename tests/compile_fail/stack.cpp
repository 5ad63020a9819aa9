// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a precision policy lacks the type Accumulate (gradients being summed), so backward has nowhere
// expect 2: fsdp: this communicator cannot reduce the precision's wire type Reduce; choose a precision whose Reduce it
// expect 3: fsdp: a sharding strategy lacks the type AtRest (the placement of weights between steps)
// expect 4: fsdp: a tiling policy lacks TilePlan plan(const Problem&) const; see tessera/tiling/policies.hpp
// expect 5: fsdp: a communicator says whose memory it moves
// expect 6: fsdp: optimizers and the weight-gradient matmuls work in float
// expect 7: fsdp: this device has no matmul in the precision's Compute type (oneDNN has none in f16 on CPU)
// expect 8: fsdp: HybridShard replicates what its inner strategy shards; Replicated shards nothing
// expect 9: fsdp: a sharding strategy on a mesh of two axes lacks int ranks_per_group() const
// expect 10: fsdp: a sharding strategy has neither fsdp::sharding::Rules rules() const, from which a schedule follows
// expect 11: fsdp: a sharding strategy that brings its own schedule lacks fsdp::sharding::Facts facts() const
// expect 12: fsdp: a sharding strategy's Layout is no layout policy
// expect 13: fsdp: RunTimeStrategy holds strategies whose placements and mesh axes are the same
// expect 14: fsdp: the first argument of Stack<Sharding, Comm, Precision, Tiling> is no sharding strategy
// expect 15: fsdp: this communicator cannot exchange pieces, as sharded sequences require; give it template <class T>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp {

struct WithoutGradients {
  using Compute = float;
  using Main = float;
  using Reduce = float;
  static constexpr std::string_view name = "no gradients";
};

struct Bf16Main : Bf16Mixed {
  using Main = bf16;
};

/// Says nothing about wire types: float alone is supported.
struct FloatOnly : comm::Threads<> {
  FloatOnly split(int color);
};

/// A whole communicator, but for exchanges.
struct WithoutExchanges {
  using Device = device::Cpu;
  using Request = comm::Threads<>::Request;
  int rank() const;
  int size() const;
  comm::Monitor& monitor();
  WithoutExchanges split(int color);
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments);
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write);
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments);
  template <class T>
  void reduce(std::span<T> values, comm::Reduction reduction);
  void broadcast(std::span<std::byte> bytes, int root);
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all);
  void barrier();
};

struct Nothing {};

struct TwoAxes : Zero3 {
  static constexpr int mesh_axes = 2;
};

struct WithoutSchedule {
  static constexpr std::string_view name = "without schedule";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;
};

struct WithoutFacts : WithoutSchedule {
  sharding::Schedule schedule(const sharding::Problem&) const { return {}; }
};

struct OwnSchedule : WithoutFacts {
  sharding::Facts facts() const { return {}; }
};

/// Lays out one group at a time.
struct OfOneGroup {
  static constexpr std::string_view name = "of one group";
  static buffer::Layout build(std::span<const Shape> shapes, int ranks);
};
struct OldLayout : Zero3 {
  using Layout = OfOneGroup;
};

#if CASE == 0
Stack<OwnSchedule, comm::Threads<>, Fp32, tiling::Untiled> own_schedule;
Stack<FullyShard<>, comm::Threads<>, Bf16Wire<Fp32>, tiling::Untiled> stack;
Stack<Zero3, FloatOnly, Fp32, tiling::Untiled> other;
Stack<HybridShard<Zero2>, comm::Threads<>, Bf16Mixed, tiling::Untiled> hybrid;
Stack<RunTimeGrouped, comm::Threads<>, Bf16Mixed, tiling::Untiled> run_time;
Stack<WithLayout<Zero3, buffer::Owned>, comm::Threads<>, Bf16Mixed, tiling::Untiled> owned;
Stack<FullyShard<>, WithoutExchanges, Fp32, tiling::Untiled> whole_sequences;
Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::Untiled, Ulysses> sharded_sequences;
#elif CASE == 1
Stack<FullyShard<>, comm::Threads<>, WithoutGradients, tiling::Untiled> stack;
#elif CASE == 2
Stack<FullyShard<>, FloatOnly, Bf16Wire<Fp32>, tiling::Untiled> stack;
#elif CASE == 3
Stack<Nothing, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 4
Stack<FullyShard<>, comm::Threads<>, Fp32, Nothing> stack;
#elif CASE == 5
Stack<FullyShard<>, Nothing, Fp32, tiling::Untiled> stack;
#elif CASE == 6
Stack<FullyShard<>, comm::Threads<>, Bf16Main, tiling::Untiled> stack;
#elif CASE == 7
Stack<FullyShard<>, comm::Threads<>, Fp16Mixed, tiling::Untiled> stack;
#elif CASE == 8
Stack<HybridShard<Replicated>, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 9
Stack<TwoAxes, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 10
Stack<WithoutSchedule, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 11
Stack<WithoutFacts, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 12
Stack<OldLayout, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 13
Stack<RunTimeStrategy<Zero3, Replicated>, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 14
Stack<comm::Threads<>, FullyShard<>, Fp32, tiling::Untiled> stack;
#elif CASE == 15
Stack<FullyShard<>, WithoutExchanges, Fp32, tiling::Untiled, Ulysses> stack;
#endif

}  // namespace fsdp
