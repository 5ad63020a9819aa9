// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/stacks/runners.hpp>
#include <support/stacks/threads_run.hpp>

namespace fsdp::test {

RunResults run_by_placement(const RunOptions& options) {
  if (read_strategy<RunTimeSharded>(options.sharding)) return run_watching<RunTimeSharded>(options);
  if (read_strategy<RunTimeGrouped>(options.sharding)) return run_watching<RunTimeGrouped>(options);
  if (options.layout) return run_watching<WithLayout<Replicated, buffer::AnyLayout>>(options);
  return run_watching<Replicated>(options);
}

}  // namespace fsdp::test
