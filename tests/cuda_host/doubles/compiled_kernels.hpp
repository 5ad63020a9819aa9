// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kernels as nvcc compiled them: what the objects register with CUDA's runtime, and whether a launch would be taken.
/// They do not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::testing::cuda_host {

/// Of a GPU of compute capability 9.0: CUDA C++ Programming Guide, "Compute Capabilities".
struct Limits {
  static constexpr std::size_t shared_unasked = 48 * 1024;  ///< of a block, static and dynamic
  static constexpr std::size_t shared = 227 * 1024;
  static constexpr std::size_t shared_reserved = 1024;  ///< by the system, of every block, besides
  static constexpr std::size_t registers = 64 * 1024;
  static constexpr unsigned threads = 1024;
};

struct CompiledKernel {
  std::string name;  ///< mangled
  std::size_t static_shared = 0;
  unsigned registers = 0;         ///< of a thread
  std::size_t dynamic_asked = 0;  ///< cudaFuncAttributeMaxDynamicSharedMemorySize; 0: never set

  std::size_t most_dynamic() const {
    return dynamic_asked > 0 ? dynamic_asked : Limits::shared_unasked - static_shared;
  }
};

struct Launch {
  const CompiledKernel* kernel;
  unsigned blocks, threads;
  std::size_t dynamic_shared;
};

/// All kernels of the program, with what the cubins in it say of them.
const std::vector<CompiledKernel>& compiled_kernels();
/// Launches that were taken since the last call.
std::vector<Launch> take_launches();

}  // namespace fsdp::testing::cuda_host
