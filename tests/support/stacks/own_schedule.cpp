// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/own_schedule.hpp>

#include <cstdint>

#include <support/errors.hpp>
#include <tessera/comm/threads.hpp>

#include <support/stack_run.hpp>

namespace fsdp::test {

using OwnModel = Llama<Stack<OwnSchedule, comm::Threads<>, Fp32, tiling::RunTimeTiling>>;

RunResults run_own_schedule(const RunOptions& options) { return run_threads<OwnModel>(options); }

std::vector<std::string> refusals(const RunOptions& options, void (*spoil)(sharding::Schedule& list),
                                  bool (*on)(int rank)) {
  std::vector<std::string> words(static_cast<std::size_t>(options.ranks));
  comm::Threads<>::run(options.ranks, {.deadline = options.deadline}, [&](comm::Threads<>& communicator) {
    const RunShape shape{.size = {.sequence_length = options.sequence_length, .micro_batches = options.micro_batches},
                         .activation_bytes = std::int64_t{1} << 60};
    words[static_cast<std::size_t>(communicator.rank())] = error_of<InputError>([&] {
      const ShardedModel<OwnModel> module(communicator, OwnModel(options.config, options.units),
                                          {.spoil = on(communicator.rank()) ? spoil : nullptr}, shape);
    });
  });
  return words;
}

}  // namespace fsdp::test
