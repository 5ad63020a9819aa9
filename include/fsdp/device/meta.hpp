// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device without storage: the same operations, which only count bytes and FLOPs.
///
/// A model on Meta with comm::Simulated is the dry run. Scratch sizes are those of the device that it stands for: of
/// the CPU, through the same library descriptors; of Cuda, through the functions that Cuda itself asks, on any machine.
/// So the planned peak is exact. Tensors of Meta must never be dereferenced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/cuda.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/device/queue.hpp>

namespace fsdp::device {

/// Stands for `Target`, which is Cpu or Cuda.
template <class Target>
struct MetaOf {
  static constexpr std::string_view name = "meta";
  static constexpr bool counts_only = true;
  static constexpr bool asynchronous = false;
  static constexpr bool overlaps = Target::overlaps;
  static constexpr bool host_memory = Target::host_memory;
  using Arena = device::Arena<MetaOf>;
  using Event = ImmediateEvent;
  using Queue = ImmediateQueue;
  class Stream;

  /// Addresses that no process maps, so that views can be compared and never read.
  static std::byte* unbacked(std::int64_t offset) {
    return reinterpret_cast<std::byte*>((std::uintptr_t{1} << 62) + static_cast<std::uintptr_t>(offset));
  }
  /// Ranges of such addresses that do not overlap, so that views of different blocks differ.
  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte*, std::int64_t) {}
  static void move(Queue&, const std::byte*, std::byte*, std::int64_t) {}
  static void poison(std::byte*, std::int64_t) {}
  static void unpoison(std::byte*, std::int64_t) {}

  // The operations of Cpu: each checks its shapes, counts, and takes and releases the scratch that Target would take.
  template <class A, class C>
  static void matmul(Stream&, Operand<A> a, Operand<A> b, Tensor<C> c, Write write = Write::overwrite);

  template <class T>
  static void rms_norm(Stream&, Tensor<const T> x, Tensor<const T> w, float eps, Tensor<T> y, Tensor<float> rstd);
  template <class T>
  static void rms_norm_backward(Stream&, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd,
                                Tensor<const T> dy, Tensor<T> dx, Write dx_write, Tensor<float> dw, Write dw_write);

  static void rotary_table(Stream&, float theta, Tensor<float> table);
  template <class T>
  static void rope(Stream&, Tensor<T> x, Tensor<const float> table, Rotation rotation,
                   CumulativeLengths documents = {});

  template <class T>
  static void attention(Stream&, const AttentionShape&, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v,
                        Tensor<T> out, Tensor<float> lse);
  template <class T>
  static void attention_backward(Stream&, const AttentionShape&, Tensor<const T> q, Tensor<const T> k,
                                 Tensor<const T> v, Tensor<const T> out, Tensor<const float> lse, Tensor<const T> dout,
                                 Tensor<T> dq, Tensor<T> dk, Tensor<T> dv);

  template <class T>
  static void swiglu(Stream&, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h);
  template <class T>
  static void swiglu_backward(Stream&, Tensor<T> gate, Tensor<T> up, Tensor<T> dh);

  template <class T>
  static void embedding(Stream&, Tensor<const T> table, Tensor<const std::int32_t> tokens, Tensor<T> out);
  template <class T>
  static void embedding_backward(Stream&, Tensor<const std::int32_t> tokens, Tensor<const T> dy, Tensor<float> dtable,
                                 Write write);

  template <class T>
  static void cross_entropy(Stream&, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale,
                            Tensor<double> loss);
  template <class T>
  static void cross_entropy_loss(Stream&, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                                 Tensor<double> loss);
  static constexpr std::int64_t cross_entropy_state = Target::cross_entropy_state;
  template <class T>
  static void cross_entropy_fold(Stream&, Tensor<const T> logits, std::int64_t first,
                                 Tensor<const std::int32_t> targets, Tensor<double> state);
  static void cross_entropy_sum(Stream&, Tensor<const double> state, Tensor<double> loss);
  template <class T>
  static void cross_entropy_gradient(Stream&, Tensor<T> logits, std::int64_t first, Tensor<const std::int32_t> targets,
                                     float scale, Tensor<const double> state);

  template <class T>
  static void add(Stream&, Tensor<const T> x, Tensor<T> y);
  template <class X, class Y>
  static void copy(Stream&, Tensor<const X> x, Tensor<Y> y);
  template <class T>
  static void fill(Stream&, Tensor<T> y, float value);

  static void sum_of_squares(Stream&, Tensor<const float> x, Tensor<double> sum);
  static void decide_step(Stream&, const StepRules&, Tensor<const StepInputs>, Tensor<const double> sums,
                          Tensor<StepDecision> step);
  template <class T>
  static void adamw(Stream&, const AdamWRules&, Tensor<const StepDecision>, Tensor<const T>, Tensor<float>,
                    Tensor<float>, Tensor<const float>, Tensor<bf16>) {
    refuse_gathered_weights<T>();
  }
  static void adamw(Stream&, const AdamWRules&, Tensor<const StepDecision> step, Tensor<float> main,
                    Tensor<float> first_moment, Tensor<float> second_moment, Tensor<const float> gradient,
                    Tensor<bf16> model);
};

/// Plans for a stream of `threads`, which may be more than this machine has.
template <class Target>
class MetaOf<Target>::Stream : public Queue {
 public:
  Stream(Arena& arena, int threads);
  Stream(Stream&&) noexcept;
  ~Stream();

  Arena& arena() const { return *arena_; }
  int threads() const { return threads_; }
  Counters counters;

  struct Planner;  ///< knows Target's scratch
  Planner& planner() const { return *planner_; }

 private:
  Arena* arena_;
  int threads_;
  std::unique_ptr<Planner> planner_;
};

using Meta = MetaOf<Cpu>;

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

/// What plans for a device: Cuda has its own, a MetaOf is one, any other device is planned for as a CPU.
template <class Device>
using MetaFor = typename detail::Planning<Device>::Meta;

}  // namespace fsdp::device
