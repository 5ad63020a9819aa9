// SPDX-License-Identifier: Apache-2.0
/// @file
/// oneDNN's matmul primitives, cached by problem. The only file that includes oneDNN.
///
/// A primitive is created once per problem and stream, and lives as long as the stream. The caller provides its scratch
/// (scratchpad_mode::user), so that every byte comes from an arena.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>

namespace fsdp::device::cpu {

/// c = op(a) op(b), or c += op(a) op(b): op(a) is [m, k], op(b) is [k, n], c is [m, n]; b has a's element type.
/// Leading dimensions count elements from one row of the stored matrix to the next.
struct MatmulKey {
  DType a = DType::f32, c = DType::f32;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool a_transposed = false, b_transposed = false, accumulate = false;
  bool single_thread = false;  ///< for use by one thread inside a parallel region, with scratch per thread

  friend auto operator<=>(const MatmulKey&, const MatmulKey&) = default;
};

/// Limits oneDNN to the instruction set of isa.hpp, unless choose_matmul specifies otherwise. Must be called before any
/// other function of oneDNN: even a query of its instruction set fixes the set.
void limit_library();

/// Returns the planner's cache, created by the first call. Not thread-safe, like the planner itself.
Cpu::Planner::Cache& cache_of(const Cpu::Planner& planner);

struct WidenedMatmul;  // see widened_matmul.hpp

struct Matmul {
  /// oneDNN's handles of the caller's memory. One set per thread of the team, so that `run` needs no lock.
  struct Arguments {
    dnnl::memory a, b, c, scratch;
    std::array<dnnl_exec_arg_t, 4> list;
  };

  dnnl::matmul primitive;
  dnnl::stream* stream = nullptr;
  std::int64_t scratch_bytes = 0;
  int threads = 1;                               ///< size of the team that it was created for, and on which it runs
  std::vector<Arguments> arguments;              ///< one set per thread, by omp_get_thread_num()
  std::shared_ptr<const WidenedMatmul> widened;  ///< set if the matmul multiplies in float; then there is no primitive
};

/// Inside a parallel region, runs on the calling thread; otherwise on a team of matmul.threads threads. Several threads
/// of a team may run one primitive concurrently, each with its own scratch (Matmul::scratch_bytes, aligned like a
/// tensor).
void run(const Matmul& matmul, const void* a, const void* b, void* c, void* scratch);

}  // namespace fsdp::device::cpu

namespace fsdp::device {

/// Returns oneDNN's CPU engine, limited to the instruction set of isa.hpp.
dnnl::engine cpu_engine();

/// A stream's cache of primitives. Not thread-safe: look a primitive up before the parallel region that runs it.
/// References stay valid.
struct Cpu::Planner::Cache {
  explicit Cache(int thread_count) : threads(thread_count) {}

  /// Returns the primitive of a problem with m, n, k > 0, and creates it on first use.
  const cpu::Matmul& matmul(const cpu::MatmulKey& key);
  /// Returns the primitive's scratch bytes without creating it, for dry runs with any number of threads.
  std::int64_t matmul_scratch(const cpu::MatmulKey& key);

  int threads;
  dnnl::engine engine = cpu_engine();
  dnnl::stream stream{engine};
  std::map<cpu::MatmulKey, cpu::Matmul> matmuls;
  std::map<cpu::MatmulKey, std::int64_t> scratch_bytes;
};

}  // namespace fsdp::device
