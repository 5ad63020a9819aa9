// SPDX-License-Identifier: Apache-2.0
// Gathered weights are a separate type of read-only views; an optimizer cannot update them.
// expect 1: fsdp: an optimizer steps main weights at rest; gathered weights are read-only views
// expect 2: Tensor<const float>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/module/parameter_group.hpp>
#include <tessera/fsdp/module/stack.hpp>

namespace fsdp {

using Group = ParameterGroup<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::Untiled>>;

void step(device::Cpu::Stream& stream, const Group& group, Tensor<const device::StepDecision> step,
          Tensor<float> moment) {
  const Tensor<float> main = group.main().range({});
#if CASE == 0
  device::enqueue(stream, device::AdamWStep<>{.step = step,
                                              .main = main,
                                              .first_moment = moment,
                                              .second_moment = moment,
                                              .gradient = group.main_gradient().range({})});
#elif CASE == 1
  const device::AdamWStep<> update{.step = step, .main = group.weight(0), .first_moment = moment};
#elif CASE == 2
  const Tensor<float> writable = group.weight(0);
#endif
}

}  // namespace fsdp
