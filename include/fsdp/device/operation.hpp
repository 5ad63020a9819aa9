// SPDX-License-Identifier: Apache-2.0
/// @file
/// The concept of an operation, and `enqueue`, which submits an operation to a stream.
///
/// An operation is an aggregate of named tensors and numbers. It has
/// - `static constexpr std::string_view name`, a literal, for reports and errors;
/// - `tensors()`: std::tie of its tensors. A Tensor<const T> is read, a Tensor<T> is written (and may be read);
/// - `cost()`: the cost that counting devices and reports charge for it;
/// - `check()`, if its arguments can be invalid; it throws LogicError (InputError for user input).
///
/// A device implements it by an overload at namespace scope, next to the device's stream or next to the operation,
///
///     void run(Cpu::Stream&, const SwiGlu<T>&);
///
/// or, if the kernel needs scratch memory,
///
///     std::int64_t scratch(const Cpu::Planner&, const BiasBackward<T>&);  // bytes
///     void run(Cpu::Stream&, const BiasBackward<T>&, Scratch);
///
/// `Planner` is a base class of the device's stream and of the counting stream that represents the device
/// (tessera/fsdp/device/meta.hpp). Both call the same `scratch`, so a dry run charges exactly the kernel's memory. To
/// add an operation, write the struct, and these functions for each device; they may be outside this library.
#pragma once

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::device {

/// Whether a device computes in T: by default float and bf16. A device with more types specialises it.
template <class D, class T>
inline constexpr bool computes_in = std::is_same_v<T, float> || std::is_same_v<T, bf16>;

/// Number of FLOPs that a device computes in the time in which it moves one byte. Tiling plans weight the memory
/// traffic of short tiles by it. It is a constant of the device's type, so that plans are the same in every run.
/// Default: 40, for two cores at 400 GFLOP/s and 10 GB/s.
template <class D>
inline constexpr std::int64_t flops_per_byte = 40;
template <class D>
requires requires { D::flops_per_byte; }
inline constexpr std::int64_t flops_per_byte<D> = D::flops_per_byte;

/// Largest number of parts that a device's sum_in_order adds, and so of ranks whose contributions are exchanged: by
/// default any.
template <class D>
inline constexpr int most_parts = std::numeric_limits<int>::max();
template <class D>
requires requires { D::most_parts; }
inline constexpr int most_parts<D> = D::most_parts;

/// Whether a device computes in T, to constrain overloads of `run`.
template <class T, class D>
concept ComputedBy = computes_in<D, T>;

/// Whether operations on activations in T take a weight in W: in T or in float.
template <class W, class T>
concept WeightFor = std::is_same_v<W, T> || std::is_same_v<W, float>;

/// The sizes and types of one matmul [m, k] x [k, n].
struct MatmulRecord {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  DType operands = DType::f32, result = DType::f32;
  bool accumulate = false;
  friend auto operator<=>(const MatmulRecord&, const MatmulRecord&) = default;
};

/// The cost of one operation, independent of the device.
struct Cost {
  std::int64_t matmul_flops = 0;
  std::int64_t attention_flops = 0;  ///< FLOPs of attention's matmuls
  std::int64_t bytes = 0;            ///< minimum memory traffic of an operation that is neither a matmul nor attention
  std::optional<MatmulRecord> matmul = {};  ///< the matmul, if the operation is one
};

/// The total cost of the operations enqueued on a stream since it was made.
struct Counters {
  std::int64_t matmul_flops = 0;
  std::int64_t attention_flops = 0;              ///< causal: 2 (backward: 5) x heads x length^2 x head_dim per document
  std::int64_t own_attention_flops = 0;          ///< those of them that cuDNN does not compute; counted for plans alone
  std::int64_t elementwise_bytes = 0;            ///< minimum memory traffic of all other operations
  std::vector<MatmulRecord>* matmuls = nullptr;  ///< list to which matmuls are appended, or nullptr

  void add(const Cost& cost);  ///< adds the cost of one operation
  /// Adds other counters, except their list of matmuls.
  void add(const Counters& others) {
    matmul_flops += others.matmul_flops;
    attention_flops += others.attention_flops;
    own_attention_flops += others.own_attention_flops;
    elementwise_bytes += others.elementwise_bytes;
  }
  /// Returns these counters minus those of an earlier copy.
  Counters since(const Counters& before) const {
    return {.matmul_flops = matmul_flops - before.matmul_flops,
            .attention_flops = attention_flops - before.attention_flops,
            .own_attention_flops = own_attention_flops - before.own_attention_flops,
            .elementwise_bytes = elementwise_bytes - before.elementwise_bytes};
  }
};

/// An operation's scratch memory while it runs: exactly the bytes that `scratch` returned, aligned as tensors are.
struct Scratch {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;

  /// Returns a tensor in the scratch, `offset` bytes from its start.
  template <class T>
  Tensor<T> as(const Shape& shape, std::int64_t offset = 0) const {
    const Tensor<T> part(reinterpret_cast<T*>(data + offset), shape);
    require(offset + part.bytes() <= bytes, "scratch: ", part.bytes(), " bytes at ", offset, " of ", bytes);
    return part;
  }
};

namespace detail {

template <class T>
void take_tensor(const Tensor<T>&);
template <class T>
concept TensorLike = requires(T tensor) {
  take_tensor(tensor);
};

template <class Tuple>
inline constexpr bool are_tensors = false;
template <class... T>
inline constexpr bool are_tensors<std::tuple<T...>> = (TensorLike<T> && ...);

template <class Op>
concept HasName = requires {
  { Op::name } -> std::convertible_to<std::string_view>;
};
template <class Op>
concept HasTensors = requires(const Op op) {
  requires are_tensors<decltype(op.tensors())>;
};
template <class Op>
concept HasCost = requires(const Op op) {
  { op.cost() } -> std::same_as<Cost>;
};

FSDP_HAS_MEMBER(check)

/// Whether argument-dependent lookup, next to the stream or the operation, finds `scratch`.
template <class Stream, class Op>
concept TakesScratch = requires(const Stream& stream, const Op& op) {
  { scratch(stream, op) } -> std::same_as<std::int64_t>;
};
/// Requires that `scratch`, if declared, has the signature that TakesScratch requires.
template <class Stream, class Op>
concept NoOtherScratch = TakesScratch<Stream, Op> || !requires(const Stream& stream, const Op& op) {
  scratch(stream, op);
};
template <class Stream, class Op>
concept RunsInScratch = TakesScratch<Stream, Op> && requires(Stream& stream, const Op& op) {
  run(stream, op, Scratch());
};
template <class Stream, class Op>
concept RunsWithout = !TakesScratch<Stream, Op> && requires(Stream & stream, const Op& op) {
  run(stream, op);
};

/// A tensor of an operation, in the form that text() prints.
struct TensorText {
  std::optional<DType> dtype;  ///< nullopt if the elements are structs
  std::int64_t element_bytes = 0;
  Shape shape;
  bool written = false;
};
std::string operation_text(std::string_view name, std::span<const TensorText> tensors);
/// Rethrows the error with the operation's text added.
[[noreturn]] void name_operation(const LogicError& error, const std::string& operation);

template <class T>
TensorText tensor_text(const Tensor<T>& tensor) {
  TensorText found{.dtype = {}, .element_bytes = sizeof(T), .shape = tensor.shape(), .written = !std::is_const_v<T>};
  if constexpr (Element<std::remove_const_t<T>>) found.dtype = dtype_of<T>();
  return found;
}

}  // namespace detail

/// An operation: see the head of this file.
template <class Op>
concept Operation = std::copy_constructible<Op> && detail::HasName<Op> && detail::HasTensors<Op> && detail::HasCost<Op>;

/// Explains in static_assert messages which requirements of an operation a type does not meet.
template <class Op>
consteval bool check_operation() {
  static_assert(std::copy_constructible<Op>,
                "fsdp: an operation is copied into queues; give it a copy constructor, as aggregates have");
  static_assert(detail::HasName<Op>,
                "fsdp: an operation lacks its name; give it static constexpr std::string_view name");
  static_assert(detail::HasTensors<Op>,
                "fsdp: an operation lacks tensors() const, by which devices know what it reads and writes; return "
                "std::tie of its Tensor members (Tensor<const T> is read, Tensor<T> is written)");
  static_assert(detail::HasCost<Op>,
                "fsdp: an operation lacks cost() const, which dry runs and reports count; return a device::Cost of its "
                "bytes and FLOPs");
  static_assert(
      !detail::has_check<Op>() || requires(const Op op) { op.check(); },
      "fsdp: an operation has a check that is no void check() const, so that wrong arguments would reach its kernel");
  return Operation<Op>;
}

/// Whether a device implements an operation.
template <class Device, class Op>
concept Has = Operation<Op> &&
    (detail::RunsInScratch<typename Device::Stream, Op> || detail::RunsWithout<typename Device::Stream, Op>);

/// Returns the operation's name, then dtypes and shapes of the tensors that it reads and writes:
/// "rms_norm(bf16 [4, 8], bf16 [8] -> bf16 [4, 8], f32 [4])".
template <Operation Op>
std::string text(const Op& op) {
  return std::apply(
      [](const auto&... each) {
        const std::array<detail::TensorText, sizeof...(each)> tensors{detail::tensor_text(each)...};
        return detail::operation_text(Op::name, tensors);
      },
      op.tensors());
}

namespace detail {

struct Enqueue {
  /// Checks the operation, counts its cost, allocates its scratch and calls run(). The operation executes immediately
  /// on a synchronous device, later on an asynchronous device. Rethrows errors of check(), and adds the operation's
  /// text to a LogicError.
  template <class Stream, class Op>
  void operator()(Stream& stream, const Op& op) const;

 private:
  template <class Op>
  static void check(const Op& op) {
    try {
      op.check();
    } catch (const LogicError& error) {
      detail::name_operation(error, text(op));
    }
  }
};

template <class Stream, class Op>
void Enqueue::operator()(Stream& stream, const Op& op) const {
  static_assert(check_operation<Op>());
  static_assert(NoOtherScratch<Stream, Op>,
                "fsdp: an operation's scratch(stream, op) returns no std::int64_t, the bytes that its kernel needs");
  static_assert(RunsInScratch<Stream, Op> || RunsWithout<Stream, Op>,
                "fsdp: a device lacks an operation; the compiler names both (Stream, Op) beside this line. Write "
                "run(stream, op) for it in the namespace of either, or run(stream, op, scratch) where "
                "scratch(stream, op) is written; see tessera/fsdp/device/operation.hpp");
  if constexpr (requires { op.check(); }) check(op);
  stream.counters.add(op.cost());
  if constexpr (RunsInScratch<Stream, Op>) {
    const std::int64_t bytes = scratch(std::as_const(stream), op);
    typename std::remove_reference_t<decltype(stream.arena())>::Frame frame(stream.arena());
    const Tensor<std::uint8_t> memory = frame.template allocate<std::uint8_t>({bytes}, MemoryKind::scratch);
    run(stream, op, Scratch{.data = reinterpret_cast<std::byte*>(memory.data()), .bytes = bytes});
  } else if constexpr (RunsWithout<Stream, Op>) {
    run(stream, op);
  }
}

}  // namespace detail

/// enqueue(stream, operation): the only way to submit work to a device.
inline constexpr detail::Enqueue enqueue;

/// Declares `run` of an operation for the types that a device computes in.
#define FSDP_RUNS(Device, Operation) \
  template <ComputedBy<Device> T>    \
  void run(Device::Stream&, const Operation<T>&);
/// The same, with its `scratch`.
#define FSDP_RUNS_IN_SCRATCH(Device, Operation)                      \
  template <ComputedBy<Device> T>                                    \
  std::int64_t scratch(const Device::Planner&, const Operation<T>&); \
  template <ComputedBy<Device> T>                                    \
  void run(Device::Stream&, const Operation<T>&, Scratch);
/// Declares `run` and `scratch` of the operations of tessera/fsdp/device/operations/, except AdamWStep and
/// CodedAdamWStep, which take scratch on some devices only.
#define FSDP_RUNS_OPERATIONS(Device)                                      \
  FSDP_RUNS(Device, Add)                                                  \
  template <ComputedBy<Device> X, ComputedBy<Device> Y>                   \
  void run(Device::Stream&, const Copy<X, Y>&);                           \
  FSDP_RUNS(Device, Fill)                                                 \
  void run(Device::Stream&, const Fill<double>&);                         \
  template <ComputedBy<Device> X, ComputedBy<Device> Y>                   \
  void run(Device::Stream&, const Scale<X, Y>&);                          \
  std::int64_t scratch(const Device::Planner&, const SumOfSquares&);      \
  void run(Device::Stream&, const SumOfSquares&, Scratch);                \
  std::int64_t scratch(const Device::Planner&, const LargestMagnitude&);  \
  void run(Device::Stream&, const LargestMagnitude&, Scratch);            \
  std::int64_t scratch(const Device::Planner&, const FixedPointSquares&); \
  void run(Device::Stream&, const FixedPointSquares&, Scratch);           \
  void run(Device::Stream&, const DecideStep&);                           \
  FSDP_RUNS_IN_SCRATCH(Device, AddDigest)                                 \
  FSDP_RUNS(Device, SgdStep)                                              \
  FSDP_RUNS(Device, EncodeBlocks)                                         \
  FSDP_RUNS(Device, DecodeBlocks)
/// The same for the operations of tessera/fsdp/device/compute/, except Rope and CachedAttention, which take scratch on
/// some devices only.
#define FSDP_RUNS_COMPUTE(Device)                                             \
  template <ComputedBy<Device> A, ComputedBy<Device> C>                       \
  std::int64_t scratch(const Device::Planner&, const Matmul<A, C>&);          \
  template <ComputedBy<Device> A, ComputedBy<Device> C>                       \
  void run(Device::Stream&, const Matmul<A, C>&, Scratch);                    \
  template <ComputedBy<Device> T, WeightFor<T> W>                             \
  void run(Device::Stream&, const RmsNorm<T, W>&);                            \
  template <ComputedBy<Device> T, WeightFor<T> W>                             \
  std::int64_t scratch(const Device::Planner&, const RmsNormBackward<T, W>&); \
  template <ComputedBy<Device> T, WeightFor<T> W>                             \
  void run(Device::Stream&, const RmsNormBackward<T, W>&, Scratch);           \
  FSDP_RUNS(Device, AddBias)                                                  \
  FSDP_RUNS_IN_SCRATCH(Device, BiasBackward)                                  \
  void run(Device::Stream&, const RotaryTable&);                              \
  FSDP_RUNS_IN_SCRATCH(Device, Attention)                                     \
  FSDP_RUNS_IN_SCRATCH(Device, AttentionBackward)                             \
  FSDP_RUNS(Device, KeepHeads)                                                \
  FSDP_RUNS(Device, SwiGlu)                                                   \
  FSDP_RUNS(Device, SwiGluBackward)                                           \
  template <ComputedBy<Device> T, WeightFor<T> W>                             \
  void run(Device::Stream&, const Embedding<T, W>&);                          \
  FSDP_RUNS(Device, EmbeddingBackward)                                        \
  FSDP_RUNS_IN_SCRATCH(Device, CrossEntropy)                                  \
  FSDP_RUNS_IN_SCRATCH(Device, CrossEntropyLoss)                              \
  FSDP_RUNS(Device, CrossEntropyFold)                                         \
  void run(Device::Stream&, const CrossEntropySum&);                          \
  FSDP_RUNS(Device, CrossEntropyGradient)                                     \
  void run(Device::Stream&, const MomentumDirection&);                        \
  FSDP_RUNS(Device, Normalized)                                               \
  FSDP_RUNS(Device, Combination)                                              \
  FSDP_RUNS(Device, DirectionStep)
/// Instantiates `run` for float and bf16, in the file that defines it.
#define FSDP_RUN_INSTANCES(Device, Operation)                  \
  template void run(Device::Stream&, const Operation<float>&); \
  template void run(Device::Stream&, const Operation<bf16>&);
/// The same, with its `scratch`.
#define FSDP_RUN_INSTANCES_IN_SCRATCH(Device, Operation)                          \
  template std::int64_t scratch(const Device::Planner&, const Operation<float>&); \
  template std::int64_t scratch(const Device::Planner&, const Operation<bf16>&);  \
  template void run(Device::Stream&, const Operation<float>&, Scratch);           \
  template void run(Device::Stream&, const Operation<bf16>&, Scratch);

/// Instantiations of `enqueue` that the library contains for its own devices: the operations that stacks enqueue
/// directly. `how` is `extern template` or `template`.
#define FSDP_ENQUEUE(how, Stream)                                                 \
  how void detail::Enqueue::operator()(Stream&, const Fill<float>&) const;        \
  how void detail::Enqueue::operator()(Stream&, const Fill<bf16>&) const;         \
  how void detail::Enqueue::operator()(Stream&, const Fill<double>&) const;       \
  how void detail::Enqueue::operator()(Stream&, const Copy<float, float>&) const; \
  how void detail::Enqueue::operator()(Stream&, const Copy<float, bf16>&) const;  \
  how void detail::Enqueue::operator()(Stream&, const Copy<bf16, float>&) const;  \
  how void detail::Enqueue::operator()(Stream&, const Copy<bf16, bf16>&) const;   \
  how void detail::Enqueue::operator()(Stream&, const AddDigest<float>&) const;   \
  how void detail::Enqueue::operator()(Stream&, const AddDigest<bf16>&) const;    \
  how void detail::Enqueue::operator()(Stream&, const SumOfSquares&) const;       \
  how void detail::Enqueue::operator()(Stream&, const LargestMagnitude&) const;   \
  how void detail::Enqueue::operator()(Stream&, const FixedPointSquares&) const;  \
  how void detail::Enqueue::operator()(Stream&, const DecideStep&) const;
/// The same instantiations for matmuls, which tessera::tessera contains.
#define FSDP_ENQUEUE_MATMULS(how, Stream)                                           \
  how void detail::Enqueue::operator()(Stream&, const Matmul<float, float>&) const; \
  how void detail::Enqueue::operator()(Stream&, const Matmul<bf16, bf16>&) const;

/// Throws LogicError, which identifies the operation, unless both tensors have the same shape.
template <class X, class Y>
void require_same_shape(std::string_view operation, const Tensor<X>& x, const Tensor<Y>& y) {
  require(x.shape() == y.shape(), operation, ": tensors of ", x.numel(), " and ", y.numel(),
          " elements; both must have one shape");
}

}  // namespace fsdp::device
