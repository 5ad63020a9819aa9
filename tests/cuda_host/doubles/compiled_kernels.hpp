// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kernels that nvcc compiled: their registration with CUDA's runtime, and a check whether a launch would be accepted.
/// They do not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::testing::cuda_host {

/// Limits of a GPU of compute capability 9.0. Source: CUDA C++ Programming Guide, "Compute Capabilities".
struct Limits {
  static constexpr std::size_t shared_unasked = 48 * 1024;  ///< bytes per block by default, static plus dynamic
  static constexpr std::size_t shared = 227 * 1024;
  static constexpr std::size_t shared_reserved = 1024;  ///< bytes that the system reserves for each block in addition
  static constexpr std::size_t registers = 64 * 1024;
  static constexpr unsigned threads = 1024;
};

struct CompiledKernel {
  std::string name;  ///< mangled name
  std::size_t static_shared = 0;
  unsigned registers = 0;         ///< per thread
  std::size_t dynamic_asked = 0;  ///< cudaFuncAttributeMaxDynamicSharedMemorySize; 0 if it was never set

  std::size_t most_dynamic() const {
    return dynamic_asked > 0 ? dynamic_asked : Limits::shared_unasked - static_shared;
  }
};

struct Launch {
  const CompiledKernel* kernel;
  unsigned blocks, threads;
  std::size_t dynamic_shared;
};

/// Operands and scratch of launches: kernels do not run, so they need only addresses with the alignment of an
/// allocation.
/// @{
template <class T>
Tensor<T> tensor(const Shape& shape) {
  return {reinterpret_cast<T*>(4096), shape};
}
inline device::Scratch scratch_of(std::int64_t bytes) {
  return {.data = reinterpret_cast<std::byte*>(4096), .bytes = bytes};
}
/// @}

/// All kernels of the program, with the attributes from its cubins.
const std::vector<CompiledKernel>& compiled_kernels();
/// Returns the launches that were accepted since the last call.
std::vector<Launch> take_launches();

}  // namespace fsdp::testing::cuda_host
