// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of operations on the CPU: correct values, no access to other memory, and exact plans of cost and scratch.
///
///     struct MyOperations {
///       static std::vector<OperationCase> cases();
///       static std::vector<OperationCase> refused();  // shapes that do not fit; no reference
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, OperationSuite, MyOperations);
///
/// A struct may list cases of many operations. These sizes find most errors: one element, a size that is not a multiple
/// of a vector register's width, and a size large enough for a thread team. The checks are compiled into the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/testing/guarded.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// A tensor of an operation under test.
struct OperationTensor {
  std::string words;     ///< description, such as "tensor 1, an output [37, 43]"
  bool written = false;  ///< whether the operation may write it
  double bound = 0;      ///< largest error of float arithmetic plus one rounding, relative to the largest magnitude
  const void* data = nullptr;
  std::int64_t bytes = 0;
  std::function<std::string()> touched;  ///< returns where memory around the tensor was written; empty if nowhere
  std::function<Numbers()> values;       ///< returns the current values
  std::function<std::vector<std::byte>()> content;  ///< returns the current values as bytes
};

/// Allocates the tensors of a case. Each is in a separate guarded allocation and contains numbers that depend only on
/// its position in the list. Matrices may have `gap` elements between rows.
class OperationMemory {
 public:
  /// `unwritten`: the value with which outputs are initialised.
  explicit OperationMemory(float unwritten = std::numeric_limits<float>::quiet_NaN()) : unwritten_(unwritten) {}
  OperationMemory(const OperationMemory&) = delete;
  OperationMemory& operator=(const OperationMemory&) = delete;

  /// Allocates an input with numbers in (-scale, scale).
  template <class T>
  Tensor<const T> input(const Shape& shape, double scale = 1, std::int64_t gap = 0) {
    return add<T>("an input", false, shape, gap, numbers<T>(scale));
  }
  /// Allocates an input with these values.
  template <class T>
  Tensor<const T> input_of(const std::vector<T>& values, const Shape& shape) {
    require(shape.numel() == std::ssize(values), "input_of: ", values.size(), " values for ", shape.numel());
    return add<T>("an input", false, shape, 0, [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  }
  /// Allocates an output. The operation must write all of it and must not read it.
  template <class T>
  Tensor<T> output(const Shape& shape, std::int64_t gap = 0) {
    return add<T>("an output", true, shape, gap, [this](std::int64_t) { return static_cast<T>(unwritten_); });
  }
  /// Allocates a tensor that is read and written, such as an accumulated sum.
  template <class T>
  Tensor<T> in_out(const Shape& shape, double scale = 1, std::int64_t gap = 0) {
    return add<T>("read and written", true, shape, gap, numbers<T>(scale));
  }

  /// All tensors, in the order of their allocation.
  const std::vector<OperationTensor>& tensors() const { return tensors_; }

 private:
  template <class T>
  auto numbers(double scale) {
    return [seed = tensors_.size(), scale](std::int64_t i) {
      return static_cast<T>(static_cast<float>(scale * number_at(seed, i)));
    };
  }

  template <class T, class Value>
  Tensor<T> add(const char* how, bool written, const Shape& shape, std::int64_t gap, const Value& value) {
    const auto held = std::make_shared<Guarded<T>>(shape, static_cast<T>(77.0f), gap);
    held->set(value);
    const Tensor<T> tensor = held->view();
    tensors_.push_back({.words = message("tensor ", tensors_.size(), ", ", how, " ", in_words(shape)),
                        .written = written,
                        .bound = std::is_same_v<T, bf16>     ? 1.0 / 256
                                 : std::is_same_v<T, double> ? 1e-12
                                                             : 2e-6,
                        .data = tensor.data(),
                        .bytes = shape.numel() * static_cast<std::int64_t>(sizeof(T)),
                        .touched = [held] { return held->touched(); },
                        .values =
                            [held] {
                              Numbers values;
                              for (const T& each : held->values()) values.push_back(static_cast<double>(each));
                              return values;
                            },
                        .content =
                            [held] {
                              const std::vector<T> values = held->values();
                              std::vector<std::byte> bytes(values.size() * sizeof(T));
                              if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
                              return bytes;
                            }});
    return tensor;
  }

  float unwritten_;
  std::vector<OperationTensor> tensors_;
};

/// An operation of any type, which runs on the CPU, on its dry run, and on the asynchronous test device.
class AnyOperation {
 public:
  /// A tensor that tensors() lists.
  struct Listed {
    const void* data;
    bool written;
  };

  /// Wraps an operation of any type.
  template <class Op>
  requires(!std::is_same_v<Op, AnyOperation>) AnyOperation(const Op& op)  // implicit: a case's lambda returns it
      : on_cpu([op](device::Cpu::Stream& stream) { device::enqueue(stream, op); }),
        on_meta([op](device::Meta::Stream& stream) { device::enqueue(stream, op); }),
        on_queue([op](QueuedCpu::Stream& stream) { device::enqueue(stream, op); }),
        name(Op::name),
        has_check(requires { op.check(); }) {
    static_assert(device::check_operation<Op>());
    using Stream = device::Cpu::Stream;
    if constexpr (device::detail::RunsInScratch<Stream, Op>) {
      scratch_bytes = [op](const Stream& stream) { return scratch(stream, op); };
      in_scratch = [op](Stream& stream, device::Scratch memory) { run(stream, op, memory); };
    } else {
      scratch_bytes = [](const Stream&) { return std::int64_t{0}; };
      in_scratch = [op](Stream& stream, device::Scratch) { run(stream, op); };
    }
    std::apply([&](const auto&... tensors) { (list(tensors), ...); }, op.tensors());
  }

  std::function<void(device::Cpu::Stream&)> on_cpu;
  std::function<void(device::Meta::Stream&)> on_meta;
  std::function<void(QueuedCpu::Stream&)> on_queue;
  std::function<std::int64_t(const device::Cpu::Stream&)> scratch_bytes;
  std::function<void(device::Cpu::Stream&, device::Scratch)> in_scratch;  ///< runs the kernel only
  std::string name;
  bool has_check;
  std::vector<Listed> listed;  ///< the tensors that tensors() lists

 private:
  template <class T>
  void list(const Tensor<T>& tensor) {
    listed.push_back({tensor.data(), !std::is_const_v<T>});
  }
};

/// An operation at given sizes, and its expected results.
struct OperationCase {
  std::string words = {};  ///< its sizes, and its difference from other cases
  /// Allocates the tensors and returns the operation.
  std::function<AnyOperation(OperationMemory&)> make = {};
  /// Computes the final values of all tensors that may be written, in the order of their allocation, from the initial
  /// values of all tensors in the same order.
  std::function<std::vector<Numbers>(std::vector<Numbers>)> reference = {};
  /// Largest allowed error, in multiples of the error of a few roundings: 2e-6 (float), 1/256 (bf16) or 1e-12 (double)
  /// of a tensor's largest magnitude.
  double bound = 1;
  bool same_bits = true;  ///< whether results are bit-identical for any number of threads
};

/// Checks values against the float64 reference.
void check_operation_values(const std::vector<OperationCase>& cases);
/// Checks that the operation writes only outputs and scratch.
void check_operation_writes(const std::vector<OperationCase>& cases);
/// Checks that results do not depend on the previous contents of outputs and scratch.
void check_operation_reads(const std::vector<OperationCase>& cases);
/// Checks that results are bit-identical for any number of threads.
void check_operation_teams(const std::vector<OperationCase>& cases);
/// Checks that tensors() lists everything that the operation reads and writes.
void check_operation_lists(const std::vector<OperationCase>& cases);
/// Checks that a dry run reports the operation's cost and scratch.
void check_operation_plans(const std::vector<OperationCase>& cases);
/// Checks that results are bit-identical if the operation is enqueued and runs later.
void check_operation_on_queues(const std::vector<OperationCase>& cases);
/// Checks that check() rejects tensors that do not fit together.
void check_operation_refuses(const std::vector<OperationCase>& refused);

namespace detail {

FSDP_HAS_MEMBER(refused)

}  // namespace detail

/// The suite. Its parameter is a struct with cases(), and optionally refused(), the shapes that do not fit together.
template <class Tested>
class OperationSuite : public ::testing::Test {
 protected:
  /// Returns the cases that check() must reject; empty if the struct lists none.
  static std::vector<OperationCase> refused() {
    if constexpr (detail::has_refused<Tested>()) return Tested::refused();
    return {};
  }
};

FSDP_SUITE(OperationSuite, (ComputesItsReference, check_operation_values(TypeParam::cases())),
           (WritesItsOutputsAlone, check_operation_writes(TypeParam::cases())),
           (ReadsNothingUnwritten, check_operation_reads(TypeParam::cases())),
           (HasTheSameBitsOnAnyTeam, check_operation_teams(TypeParam::cases())),
           (ListsItsTensors, check_operation_lists(TypeParam::cases())),
           (IsPlannedAsItRuns, check_operation_plans(TypeParam::cases())),
           (RunsLaterAsAtOnce, check_operation_on_queues(TypeParam::cases())),
           (RefusesShapesThatDoNotFit, check_operation_refuses(this->refused())));

}  // namespace fsdp::testing
