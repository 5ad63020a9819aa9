// SPDX-License-Identifier: Apache-2.0
/// @file
/// oneDNN's primitives: created, cached by problem, and run on a stream's team of threads.
#include "onednn.hpp"

#include <omp.h>

#include <mutex>

#include <tessera/fsdp/core/error.hpp>

#include "../../cpu/isa.hpp"
#include "../../cpu/threads.hpp"
#include "matmul_choice.hpp"
#include "widened_matmul.hpp"

namespace fsdp::device {
namespace {

dnnl::memory::data_type library_type(DType dtype) {
  require(dtype == DType::f32 || dtype == DType::bf16, "matmul: element type ", name_of(dtype), "; f32 and bf16 exist");
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t leading, bool transposed) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, leading} : dnnl::memory::dims{leading, 1};
  return {{rows, columns}, library_type(dtype), strides};
}

/// Describes a matmul to oneDNN. Scratch and blocking depend on the current team size: call it under cpu::TeamSize.
dnnl::matmul::primitive_desc describe(const cpu::MatmulKey& key, const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::memory::desc a = matrix(key.a, key.m, key.k, key.lda, key.a_transposed);
  const dnnl::memory::desc b = matrix(key.a, key.k, key.n, key.ldb, key.b_transposed);
  const dnnl::memory::desc c = matrix(key.c, key.m, key.n, key.ldc, false);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

/// Serialises calls that create primitives. Thread ranks share oneDNN's primitive cache, whose synchronisation
/// ThreadSanitizer cannot see. Primitives are created once per problem, so the lock costs nothing.
std::mutex making_primitives;

/// Calls `body` under this lock, and converts oneDNN's errors to LogicError, with the problem and oneDNN's message.
template <class Body>
decltype(auto) explained(const cpu::MatmulKey& key, Body body) {
  const std::lock_guard turn(making_primitives);
  try {
    return body();
  } catch (const dnnl::error& error) {
    throw LogicError(message("matmul [", key.m, ", ", key.k, "] x [", key.k, ", ", key.n, "] of ", name_of(key.a),
                             " to ", name_of(key.c), ", leading dimensions ", key.lda, " ", key.ldb, " ", key.ldc,
                             ": oneDNN says ", error.what()));
  }
}

}  // namespace

namespace cpu {

void run(const Matmul& matmul, const void* a, const void* b, void* c, void* scratch) {
  if (matmul.widened) return run(*matmul.widened, a, b, c, static_cast<std::byte*>(scratch));
  // A caller's own parallel region may have more threads than the stream; Tessera's parallel regions do not.
  const auto thread = static_cast<std::size_t>(omp_get_thread_num());
  const Matmul::Arguments& arguments = matmul.arguments[thread < matmul.arguments.size() ? thread : 0];
  // Handles are set without a stream: with one, oneDNN would check for padding to clear.
  arguments.a.set_data_handle(const_cast<void*>(a));
  arguments.b.set_data_handle(const_cast<void*>(b));
  arguments.c.set_data_handle(c);
  if (matmul.scratch_bytes > 0) arguments.scratch.set_data_handle(scratch);
  const TeamSize team(matmul.threads);
  const dnnl_status_t status = dnnl_primitive_execute(matmul.primitive.get(), matmul.stream->get(),
                                                      static_cast<int>(arguments.list.size()), arguments.list.data());
  require(status == dnnl_success, "matmul: oneDNN could not run, status ", static_cast<int>(status));
}

void limit_library() {
  if (!is_lowered() || !matmul_choice().limits_library) return;
  constexpr std::array sets = {dnnl::cpu_isa::sse41, dnnl::cpu_isa::avx2, dnnl::cpu_isa::avx512_core,
                               dnnl::cpu_isa::avx512_core_bf16};
  dnnl::set_max_cpu_isa(sets[static_cast<std::size_t>(detected_isa())]);  // only the first call has an effect
}

Cpu::Planner::Cache& cache_of(const Cpu::Planner& planner) {
  if (!planner.cache()) planner.cache() = std::make_shared<Cpu::Planner::Cache>(planner.threads());
  return *planner.cache();
}

}  // namespace cpu

dnnl::engine cpu_engine() {
  cpu::limit_library();
  return {dnnl::engine::kind::cpu, 0};
}

const cpu::Matmul& Cpu::Planner::Cache::matmul(const cpu::MatmulKey& key) {
  if (const auto found = matmuls.find(key); found != matmuls.end()) return found->second;
  if (cpu::multiplies_in_float(key)) {
    cpu::Matmul made;
    made.widened = std::make_shared<const cpu::WidenedMatmul>(cpu::make_widened(*this, key));
    made.scratch_bytes = made.widened->scratch_bytes();
    return matmuls.emplace(key, std::move(made)).first->second;
  }
  return explained(key, [&]() -> const cpu::Matmul& {
    const int team_size = key.single_thread ? 1 : threads;
    const cpu::TeamSize team(team_size);
    const dnnl::matmul::primitive_desc description = describe(key, engine);
    cpu::Matmul made;
    made.threads = team_size;
    made.primitive = dnnl::matmul(description);
    made.stream = &stream;
    made.scratch_bytes = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
    for (int thread = 0; thread < threads; ++thread) {
      cpu::Matmul::Arguments arguments{.a = {description.src_desc(), engine, nullptr},
                                       .b = {description.weights_desc(), engine, nullptr},
                                       .c = {description.dst_desc(), engine, nullptr},
                                       .scratch = {description.scratchpad_desc(), engine, nullptr},
                                       .list = {}};
      arguments.list = {{{DNNL_ARG_SRC, arguments.a.get()},
                         {DNNL_ARG_WEIGHTS, arguments.b.get()},
                         {DNNL_ARG_DST, arguments.c.get()},
                         {DNNL_ARG_SCRATCHPAD, arguments.scratch.get()}}};
      made.arguments.push_back(std::move(arguments));
    }
    return matmuls.emplace(key, std::move(made)).first->second;
  });
}

std::int64_t Cpu::Planner::Cache::matmul_scratch(const cpu::MatmulKey& key) {
  if (const auto found = scratch_bytes.find(key); found != scratch_bytes.end()) return found->second;
  const auto described = [&] {
    const cpu::TeamSize team(key.single_thread ? 1 : threads);
    return static_cast<std::int64_t>(describe(key, engine).scratchpad_desc().get_size());
  };
  const std::int64_t bytes =
      cpu::multiplies_in_float(key) ? cpu::plan_widened(*this, key).scratch_bytes() : explained(key, described);
  return scratch_bytes[key] = bytes;
}

}  // namespace fsdp::device
