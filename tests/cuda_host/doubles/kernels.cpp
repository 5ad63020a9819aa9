// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kernels on the fake CUDA runtime: emulated blocks, one kernel at a time, in stream order.
#include "src/fsdp/device/cuda/runtime.hpp"

#include <exception>
#include <mutex>

#include <support/cuda_emulation/accesses.hpp>
#include <support/cuda_emulation/controls.hpp>
#include <support/cuda_emulation/emulation.hpp>

#include "machine.hpp"

namespace fsdp::device::cuda {
namespace {

const bool checked = [] {
  emulation::check_accesses(true);
  testing::cuda_host::machine().watch = {emulation::add_memory, emulation::remove_memory};
  return true;
}();

}  // namespace

cudaError_t probe() {
  using testing::cuda_host::Machine, testing::cuda_host::machine;
  return Machine::leave(machine().enter("cudaFuncGetAttributes", true));
}

void emulation::submit(Lane lane, const char* kernel, std::function<void()> work) {
  using testing::cuda_host::Machine, testing::cuda_host::machine;
  const cudaError_t asked = machine().enter("cudaLaunchKernel", true);
  Machine::leave(asked != cudaSuccess ? asked : machine().submit(lane.stream, [kernel, work = std::move(work)] {
    static std::mutex one;
    const std::lock_guard lock(one);
    try {
      work();
    } catch (const std::exception& error) {
      machine().problem(message(kernel, ": ", error.what()));
    }
  }));
  require_launched(kernel);
}

}  // namespace fsdp::device::cuda
