// SPDX-License-Identifier: Apache-2.0
/// @file
/// device::Cuda on the host, for tests of its kernels: host memory, immediate queues, and matmuls as loops.
#include <tessera/fsdp/device/compute/cuda.hpp>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "src/fsdp/device/cuda/kernels.hpp"
#include "src/fsdp/device/cuda/scratch.hpp"

#include "accesses.hpp"
#include "controls.hpp"
#include "emulation.hpp"

namespace fsdp::device {
namespace {

using namespace cuda::emulation;

const bool checked = (check_accesses(true), true);

}  // namespace

std::string cuda_problem() { return {}; }
int cuda_devices() { return 1; }
void use_cuda_device(int) {}

CudaRange::CudaRange(const char*) {}
CudaRange::~CudaRange() {}

std::byte* Cuda::allocate(std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(256, static_cast<std::size_t>(round_up(bytes, 256))));
  require<MemoryError>(data != nullptr, "no ", bytes, " bytes");
  std::memset(data, 0, static_cast<std::size_t>(bytes));
  add_memory(data, static_cast<std::size_t>(bytes));
  return data;
}
void Cuda::deallocate(std::byte* data, std::int64_t) {
  remove_memory(data);
  std::free(data);
}
void Cuda::poison(std::byte* data, std::int64_t bytes) {
  if (data == nullptr) return;
  std::memset(data, 0xff, static_cast<std::size_t>(bytes));
  forbid(data, static_cast<std::size_t>(bytes));
}
void Cuda::unpoison(std::byte* data, std::int64_t bytes) { permit(data, static_cast<std::size_t>(bytes)); }
std::byte* HostOffload<Cuda>::allocate(std::int64_t bytes) { return Cuda::allocate(bytes); }
void HostOffload<Cuda>::deallocate(std::byte* data, std::int64_t bytes) { Cuda::deallocate(data, bytes); }

bool Cuda::Event::happened() const { return true; }
Cuda::Queue::Queue(std::string_view name, Priority) : name_(name) {}
Cuda::Event Cuda::Queue::record() { return {}; }
void Cuda::Queue::wait(const Event&) {}
void Cuda::Queue::synchronize() {}
/// Immediate queues record nothing: a launch calls `ask` again.
Cuda::Graph Cuda::capture(Queue&, const std::function<void()>& ask) {
  Graph graph;
  graph.handle_ = std::make_shared<std::function<void()>>(ask);
  return graph;
}
void Cuda::Graph::launch(Queue&) const { (*static_cast<const std::function<void()>*>(handle_.get()))(); }
void Cuda::move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

void cuda::emulation::submit(Lane, const char*, std::function<void()> work) { work(); }

/// There is no cuDNN here: our kernels compute all attention.
bool cuda::attention_through_cudnn(const Cuda::Stream&, const AttentionCall&, Tensor<std::uint8_t>) { return false; }

struct Cuda::Stream::Cache {};
Cuda::Stream::Stream(Arena& arena, int, bool plain) : Queue("emulated"), arena_(&arena), plain_(plain) {}
Cuda::Stream::Stream(Stream&&) noexcept = default;
Cuda::Stream::~Stream() = default;

template <ComputedBy<Cuda> A, ComputedBy<Cuda> C>
void run(Cuda::Stream&, const Matmul<A, C>& op, Scratch) {
  const MatmulRecord problem = op.record();
  const auto at = [](const Operand<A>& operand, std::int64_t row, std::int64_t column) {
    return static_cast<float>(operand.transposed ? operand.tensor.row(column)[row] : operand.tensor.row(row)[column]);
  };
  for (std::int64_t i = 0; i < problem.m; ++i)
    for (std::int64_t j = 0; j < problem.n; ++j) {
      float sum = problem.accumulate ? static_cast<float>(op.c.row(i)[j]) : 0.0f;
      for (std::int64_t l = 0; l < problem.k; ++l) sum += at(op.a, i, l) * at(op.b, l, j);
      op.c.row(i)[j] = C(sum);
    }
}

template void run(Cuda::Stream&, const Matmul<float, float>&, Scratch);
template void run(Cuda::Stream&, const Matmul<bf16, bf16>&, Scratch);
template void run(Cuda::Stream&, const Matmul<bf16, float>&, Scratch);
template void run(Cuda::Stream&, const Matmul<f16, f16>&, Scratch);
template void run(Cuda::Stream&, const Matmul<f16, float>&, Scratch);

}  // namespace fsdp::device
