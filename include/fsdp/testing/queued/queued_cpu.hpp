// SPDX-License-Identifier: Apache-2.0
/// @file
/// An asynchronous test device on the CPU. It orders work as a GPU does, and checks the order of every memory access.
///
/// Its operations are those of the CPU and give bit-identical results. They run later, on the threads of the queues.
/// The tensors() of each operation specify its accesses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/transfer.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/testing/queued/queue.hpp>

namespace fsdp::testing {

/// The device. Queues are threads that pause at random; events order them.
struct QueuedCpu {
  static constexpr std::string_view name = "queued-cpu";
  static constexpr bool counts_only = false;
  static constexpr bool asynchronous = true;
  static constexpr bool overlaps = true;
  static constexpr bool host_memory = false;  // as on a GPU
  using Arena = device::Arena<QueuedCpu>;
  using Event = QueuedEvent;
  using Queue = WorkQueue;
  using Graph = WorkGraph;
  class Stream;
  using Cpu = device::Cpu;
  using Planner = Cpu::Planner;  ///< for dry runs; streams allocate no scratch, since queues have their own

  static std::byte* allocate(std::int64_t bytes) {
    std::byte* const data = Cpu::allocate(bytes);
    MemoryOrder::instance().watch(data, bytes);
    return data;
  }
  /// Waits for all queues first, as a GPU does.
  static void deallocate(std::byte* data, std::int64_t bytes) {
    WorkQueue::drain_all();
    MemoryOrder::instance().forget(data, bytes);
    Cpu::deallocate(data, bytes);
  }
  static void poison(std::byte*, std::int64_t) {}  // queues may still use memory that the host has released
  static void unpoison(std::byte*, std::int64_t) {}
  static std::byte* unbacked(std::int64_t) { return nullptr; }
  /// Returns descriptions of the unordered accesses since the last call.
  static std::vector<std::string> take_races() { return MemoryOrder::instance().take_races(); }

  /// Returns a graph of the work that `ask` enqueues, under CUDA's rules of capture.
  static Graph capture(Queue& queue, const std::function<void()>& ask) { return queue.capture(ask); }

  static void move(Queue& queue, const std::byte* from, std::byte* to, std::int64_t bytes) {
    const std::array accesses{Access{from, bytes, false}, Access{to, bytes, true}};
    queue.submit("move", accesses, [=](Cpu::Stream& cpu) { Cpu::move(cpu, from, to, bytes); });
  }
  static void round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
    require(wire == DType::bf16, "round: to bf16 alone");
    const std::array accesses{Access{from, count * 4, false}, Access{to, count * 2, true}};
    queue.submit("round", accesses,
                 [=](Cpu::Stream&) { comm::round_to_bf16(from, count, reinterpret_cast<bf16*>(to)); });
  }
  static void sum_in_order(Queue& queue, std::span<const std::byte* const> parts, DType stored, DType wire,
                           std::int64_t count, Write write, float* sum) {
    std::vector<Access> accesses;
    std::vector<comm::Contribution> contributions;
    for (const std::byte* part : parts) {
      accesses.push_back({part, count * size_of(stored), false});
      contributions.push_back({part, stored});
    }
    accesses.push_back({sum, count * 4, true});
    queue.submit("sum_in_order", accesses, [=, contributions = std::move(contributions)](Cpu::Stream&) {
      comm::sum_in_order(contributions, wire, count, write, sum);
    });
  }
};

/// Adds the accesses that an operation makes through this tensor.
template <class T>
void list_access(std::vector<Access>& accesses, const Tensor<T>& tensor) {
  if (tensor.data() == nullptr || tensor.numel() == 0) return;
  const std::int64_t last =
      tensor.contiguous() ? tensor.numel() : (tensor.rows() - 1) * tensor.row_stride() + tensor.columns();
  accesses.push_back({tensor.data(), last * static_cast<std::int64_t>(sizeof(T)), !std::is_const_v<T>});
}

class QueuedCpu::Stream : public Queue {
 public:
  Stream(Arena& arena, int threads) : Queue("stream"), arena_(&arena), threads_(threads) {}
  Arena& arena() const { return *arena_; }
  int threads() const { return threads_; }
  device::Counters counters;

 private:
  Arena* arena_;
  int threads_;
};

/// Runs any operation: a copy of it runs later on a CPU stream; its accesses are checked now.
template <class Op>
void run(QueuedCpu::Stream& stream, const Op& op) {
  std::vector<Access> accesses;
  std::apply([&](const auto&... tensors) { (list_access(accesses, tensors), ...); }, op.tensors());
  stream.submit(Op::name.data(), accesses, [op](device::Cpu::Stream& cpu) { device::enqueue(cpu, op); });
}

static_assert(device::check_device<QueuedCpu>());

}  // namespace fsdp::testing

/// Plans the scratch of the CPU, although queues have separate scratch, and memory that the host cannot read.
template <>
struct fsdp::device::detail::Planning<fsdp::testing::QueuedCpu> {
  using Meta = MetaOf<testing::QueuedCpu>;
};
