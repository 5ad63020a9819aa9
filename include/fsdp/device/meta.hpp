// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device without storage: operations are checked and counted, not computed.
///
/// The dry run is a model on Meta with comm::Simulated. Meta represents a target device and charges that device's
/// scratch: its stream has the target's Planner as a base class, and so calls the same scratch(planner, operation). For
/// the CPU, this uses the same oneDNN primitives as a run; for Cuda, it uses functions of the problem that need no GPU.
/// Therefore the planned peak is exact. Tensors of Meta must never be dereferenced.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

struct Cpu;
struct Cuda;
template <class Target>
class MetaStream;

/// The counting device for `Target`, a device with a Planner: Target::Planner(threads) is a base class of its stream.
template <class Target>
struct MetaOf {
  static constexpr std::string_view name = "meta";
  static constexpr bool counts_only = true;
  static constexpr bool asynchronous = false;
  static constexpr bool overlaps = Target::overlaps;
  static constexpr bool host_memory = Target::host_memory;
  static constexpr std::int64_t flops_per_byte = device::flops_per_byte<Target>;
  static constexpr int most_parts = device::most_parts<Target>;
  using Arena = device::Arena<MetaOf>;
  using Event = ImmediateEvent;
  using Queue = ImmediateQueue;
  using Stream = MetaStream<Target>;

  /// Returns an address that no process maps, so that views can be compared but not dereferenced.
  static std::byte* unbacked(std::int64_t offset) {
    return reinterpret_cast<std::byte*>((std::uintptr_t{1} << 62) + static_cast<std::uintptr_t>(offset));
  }
  /// Returns a range of such addresses. Ranges do not overlap, so that views of different blocks differ.
  static std::byte* allocate(std::int64_t bytes) {
    static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 60};
    return reinterpret_cast<std::byte*>(next.fetch_add(static_cast<std::uintptr_t>(round_up(bytes, alignment))));
  }
  static void deallocate(std::byte*, std::int64_t) {}
  static void move(Queue&, const std::byte*, std::byte*, std::int64_t) {}
  static void poison(std::byte*, std::int64_t) {}
  static void unpoison(std::byte*, std::int64_t) {}
};

/// A stream that only counts. `threads` may exceed this machine's cores.
template <class Target>
class MetaStream : public ImmediateQueue, public Target::Planner {
 public:
  using Arena = typename MetaOf<Target>::Arena;

  /// Charges scratch to `arena`.
  MetaStream(Arena& arena, int threads) : Target::Planner(threads), arena_(&arena) {}

  Arena& arena() const { return *arena_; }
  Counters counters;

 private:
  Arena* arena_;
};

/// Does nothing: enqueue has already checked and counted the operation, and charged Target's scratch. Throws InputError
/// for a negative cost. Only the dry run checks this, since a run enqueues the same operations.
template <class Target, class Op>
void run(MetaStream<Target>& stream, const Op& op, Scratch = {}) {
  const Cost cost = op.cost();
  require<InputError>(cost.matmul_flops >= 0 && cost.attention_flops >= 0 && cost.bytes >= 0, "operation ", Op::name,
                      ": its cost() is ", cost.matmul_flops, " FLOPs of matmuls, ", cost.attention_flops,
                      " of attention and ", cost.bytes, " bytes; give numbers of at least 0");
  if constexpr (requires { in_own_kernels(stream, op.shape, DType::f32, true); })
    if (in_own_kernels(
            stream, op.shape, dtype_of<std::remove_cvref_t<decltype(*op.q.data())>>(), requires { op.dq; }))
      stream.counters.own_attention_flops += cost.attention_flops;
}

using Meta = MetaOf<Cpu>;

/// Returns a tensor for dry runs, whose memory is never read.
template <class T>
Tensor<T> unbacked(const Shape& shape) {
  return {reinterpret_cast<T*>(Meta::unbacked(0)), shape};
}

namespace detail {
template <class Device>
struct Planning {
  using Meta = MetaOf<Cpu>;
};
template <>
struct Planning<Cuda> {
  using Meta = MetaOf<Cuda>;
};
template <class Target>
struct Planning<MetaOf<Target>> {
  using Meta = MetaOf<Target>;
};
}  // namespace detail

/// The counting device for `Device`: MetaOf<Cuda> for Cuda, `Device` itself if it is a MetaOf, and MetaOf<Cpu> for any
/// other device.
template <class Device>
using MetaFor = typename detail::Planning<Device>::Meta;

// Compiled into the library.
extern template class Arena<Meta>;

}  // namespace fsdp::device
