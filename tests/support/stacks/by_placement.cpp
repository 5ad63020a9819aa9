// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_by_placement(const RunOptions& options) {
  const auto run = [&]<class Sharding>(const Sharding&) {
    return run_threads<Llama<Stack<Sharding, comm::Threads<>, Fp32, tiling::RunTimeTiling, Ulysses>>>(options);
  };
  if (const auto sharded = read_strategy<RunTimeSharded>(options.sharding)) return run(*sharded);
  if (const auto grouped = read_strategy<RunTimeGrouped>(options.sharding)) return run(*grouped);
  if (options.layout) return run(WithLayout<Replicated, buffer::AnyLayout>{});
  return run(Replicated{});
}

}  // namespace fsdp::test
