// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: an optimizer lacks its name, which checkpoints and logs hold
// expect 2: fsdp: an optimizer does not name its states
// expect 3: fsdp: an optimizer lacks the update of this stack's weights
// expect 4: fsdp: this optimizer works on whole matrices, and the strategy cuts them over ranks
// expect 5: fsdp: this optimizer works on whole matrices, and the strategy cuts them over ranks
// expect 6: fsdp: an optimizer does not say what it must see of a parameter
// expect 7: fsdp: an optimizer does not show its constants
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace fsdp {

template <class Sharding>
using StackOf = Stack<Sharding, comm::Threads<>, Fp32>;

/// AdamW with one part hidden.
struct Nameless : optim::AdamW {
  void name() const;
};
struct Grainless : optim::AdamW {
  void grain() const;
};
struct Stateless : optim::AdamW {
  void states() const;
};
struct Hidden : optim::AdamW {
  void visit() const;
};
struct Idle : optim::AdamW {
  void update() const;
};

#if CASE == 0
static_assert(optim::check_optimizer<optim::AdamW>());
static_assert(sizeof(optim::ShardedOptimizer<StackOf<WithLayout<FullyShard<>, buffer::Owned>>, optim::Muon>) > 0);
static_assert(
    sizeof(optim::ShardedOptimizer<
           StackOf<HybridShard<WithLayout<FullyShard<>, buffer::Blocks>, OptimizerAcross::sharded>>, optim::Muon>) > 0);
static_assert(sizeof(optim::ShardedOptimizer<StackOf<Replicated>, optim::Muon>) > 0);
#elif CASE == 1
static_assert(optim::check_optimizer<Nameless>());
#elif CASE == 2
static_assert(optim::check_optimizer<Stateless>());
#elif CASE == 3
static_assert(sizeof(optim::ShardedOptimizer<StackOf<FullyShard<>>, Idle>) > 0);
#elif CASE == 4
static_assert(sizeof(optim::ShardedOptimizer<StackOf<FullyShard<>>, optim::Muon>) > 0);
#elif CASE == 5
static_assert(
    sizeof(optim::ShardedOptimizer<
           StackOf<HybridShard<WithLayout<FullyShard<>, buffer::Owned>, OptimizerAcross::sharded>>, optim::Muon>) > 0);
#elif CASE == 6
static_assert(optim::check_optimizer<Grainless>());
#elif CASE == 7
static_assert(optim::check_optimizer<Hidden>());
#endif

}  // namespace fsdp
