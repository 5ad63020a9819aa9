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
// expect 13: fsdp: RunTimeStrategy holds strategies whose optimizer state has the same placement across groups
// expect 14 first: fsdp: the arguments of Stack are in another order than Stack<Sharding, Comm, Precision, Tiling>
// expect 15: fsdp: this communicator cannot exchange pieces, as sharded sequences require; give it template <class T>
// expect 16 first: fsdp: the arguments of Stack are in another order than Stack<Sharding, Comm, Precision, Tiling>
// expect 17 first: fsdp: the first argument of Sharded<Stack, Optimizer> is not a Stack
// expect 18: fsdp: a Use that is not named ends with this expression, and its weights and gradients with it
// expect 19: fsdp: a Pass that is not named ends with this expression, and a Use of it may not outlive it
// expect 20: a Use that is not named ends at once; write auto use = pass.forward(unit)
// expect 21: a Pass that is not named is left unfinished at once; write auto pass = module.train()
// expect 22 first: fsdp: as_eigen's map is column-major, Eigen's default, and a tensor is row-major
// expect 23: fsdp: HybridShard forms groups of ranks, and values of its inner strategy may form some or replicate
// expect 24: fsdp: Reproducible is of one strategy, and a RunTimeStrategy holds several
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/views.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/sharded.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
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

/// Does not declare wire types, so only float is supported.
struct FloatOnly : comm::Threads<> {
  FloatOnly split(int color);
};

/// A complete communicator without exchanges.
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

/// Like Eigen::Map<const Eigen::MatrixXf>.
struct ColumnMajorMap {
  using Scalar = float;
  using Index = std::ptrdiff_t;
  enum { RowsAtCompileTime = -1, ColsAtCompileTime = -1, IsRowMajor = 0 };
  ColumnMajorMap(const float* data, Index rows, Index columns);
};

using Whole = Stack<FullyShard<>, comm::Threads<>, Fp32>;

#if CASE == 0
inline void named(Sharded<Whole>& module) {
  auto pass = module.train();
  auto use = pass.forward(0);
  (void)use.weight("w");
}
Stack<OwnSchedule, comm::Threads<>, Fp32, tiling::Untiled> own_schedule;
Stack<FullyShard<>, comm::Threads<>, Bf16Wire<Fp32>, tiling::Untiled> stack;
Stack<Zero3, FloatOnly, Fp32, tiling::Untiled> other;
Stack<HybridShard<Zero2>, comm::Threads<>, Bf16Mixed, tiling::Untiled> hybrid;
Stack<RunTimeGrouped, comm::Threads<>, Bf16Mixed, tiling::Untiled> run_time;
Stack<RunTimeAny, comm::Threads<>, Bf16Mixed, tiling::Untiled> any;
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
Stack<RunTimeStrategy<Zero3, HybridShard<Zero3, OptimizerAcross::sharded>>, comm::Threads<>, Fp32, tiling::Untiled>
    stack;
#elif CASE == 14
Stack<comm::Threads<>, FullyShard<>, Fp32, tiling::Untiled> stack;
#elif CASE == 15
Stack<FullyShard<>, WithoutExchanges, Fp32, tiling::Untiled, Ulysses> stack;
#elif CASE == 16
Stack<FullyShard<>, Fp32, comm::Threads<>> stack;
#elif CASE == 17
std::size_t bytes() { return sizeof(Sharded<FullyShard<>>); }
#elif CASE == 18
void unnamed(Pass<Whole>& pass) { (void)pass.forward(0).weight("w"); }
#elif CASE == 19
auto unnamed(Sharded<Whole>& module) { return module.train().forward(0); }
#elif CASE == 20
void unnamed(Pass<Whole>& pass) { pass.forward(0); }
#elif CASE == 21
void unnamed(Sharded<Whole>& module) { module.train(); }
#elif CASE == 22
auto weight(Use<Whole>& use) { return as_eigen<ColumnMajorMap>(use.weight("w")); }
#elif CASE == 23
Stack<HybridShard<RunTimeAny>, comm::Threads<>, Fp32, tiling::Untiled> stack;
#elif CASE == 24
Stack<Reproducible<RunTimeSharded>, comm::Threads<>, Fp32, tiling::Untiled> stack;
#endif

}  // namespace fsdp
