// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/version.hpp>
#include <tessera/tiling/policies.hpp>

int main() {
  std::vector<float> memory(6, 1.0f);
  const fsdp::Tensor<float> x(memory.data(), {2, 3});
  const fsdp::tiling::TilePlan plan = fsdp::tiling::StaticTiles<4>{}.plan({.tokens = 5, .kept_bytes_per_token = 8});
  const int cores = fsdp::device::available_cores();  // calls a function of the library
  std::printf("tessera %s: %d tiles, %d elements, %d cores\n", fsdp::version_string.data(),
              static_cast<int>(plan.tiles.size()), static_cast<int>(x.numel()), cores);
  return plan.tiles.size() == 3 && cores > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
