// SPDX-License-Identifier: Apache-2.0
// A Stack with a user-defined strategy, without the header that checks its schedules.
// expect 1 first: fsdp: the schedules of a sharding strategy that is not the library's are checked while compiling
// expect 2 first: add '#include <tessera/fsdp/sharding/own_strategy.hpp>' before the first Stack of the strategy
// expect 3 first: fsdp: the schedules of a sharding strategy that is not the library's are checked while compiling
// expect 4 first: fsdp: the schedules of a sharding strategy that is not the library's are checked while compiling
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

namespace fsdp {

struct Own : Zero3 {};
/// Its schedules cannot be checked while compiling.
struct AtRunTime : Zero3 {
  sharding::Rules rules() const { return Zero3::rules(); }
};
template <class Strategy>
using StackOf = Stack<Strategy, comm::Threads<>, Fp32>;

#if CASE == 0
StackOf<HybridShard<Zero3, OptimizerAcross::sharded>> hybrid;
StackOf<Reproducible<WithLayout<Offload<FullyShard<>>, buffer::Owned>>> wrapped;
StackOf<RunTimeStrategy<Zero3, Reproducible<Zero3>>> run_time;
#elif CASE == 1
StackOf<Own> own;
#elif CASE == 2
StackOf<AtRunTime> at_run_time;
#elif CASE == 3
StackOf<HybridShard<WithLayout<Offload<Own>, buffer::Owned>>> wrapped;
#elif CASE == 4
StackOf<RunTimeStrategy<Zero3, Own>> run_time;
#endif

}  // namespace fsdp
