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
/// of a vector register's width, and a size large enough for a thread team.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
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

namespace detail {

FSDP_HAS_MEMBER(refused)

inline constexpr int team_sizes[] = {1, 2, 3};

inline std::string words_of(const OperationCase& one, const AnyOperation& operation) {
  return message(operation.name, ", ", one.words);
}
inline std::string words_of(const OperationCase& one, const AnyOperation& operation, int threads) {
  return message(words_of(one, operation), ", ", threads, threads == 1 ? " thread" : " threads");
}

/// A single run of an operation.
class OperationRun {
 public:
  /// Outputs are initialised with `unwritten`, and every byte of the kernel's scratch with `scratch_byte`.
  OperationRun(const OperationCase& one, int threads, float unwritten = std::numeric_limits<float>::quiet_NaN(),
               std::byte scratch_byte = std::byte{0xff})
      : memory_(unwritten), operation_(one.make(memory_)) {
    words = words_of(one, operation_);
    for (const OperationTensor& tensor : memory_.tensors()) {
      before.push_back(tensor.values());
      content_before.push_back(tensor.content());
    }
    device::Ledger ledger;
    device::Cpu::Arena arena(ledger, 0);
    device::Cpu::Stream stream(arena, threads);
    const std::int64_t bytes = operation_.scratch_bytes(stream);
    Guarded<std::uint8_t> scratch({bytes}, 0x5a);
    scratch.set([&](std::int64_t) { return std::to_integer<std::uint8_t>(scratch_byte); });
    operation_.in_scratch(stream, {.data = reinterpret_cast<std::byte*>(scratch.view().data()), .bytes = bytes});
    scratch_touched = scratch.touched();
  }

  const std::vector<OperationTensor>& tensors() const { return memory_.tensors(); }
  const AnyOperation& operation() const { return operation_; }
  std::string words;  ///< the operation and its case
  std::vector<Numbers> before;
  std::vector<std::vector<std::byte>> content_before;
  std::string scratch_touched;

 private:
  OperationMemory memory_;
  AnyOperation operation_;
};

/// Checks that two runs wrote bit-identical outputs.
inline bool expect_same_outputs(std::string_view asked, std::string_view where, const OperationRun& found,
                                const OperationRun& expected) {
  for (std::size_t i = 0; i < found.tensors().size(); ++i) {
    if (found.tensors()[i].content() == expected.tensors()[i].content()) continue;
    const Numbers a = found.tensors()[i].values(), b = expected.tensors()[i].values();
    std::size_t first = 0;
    while (first < a.size() && same_bits(a[first], b[first])) ++first;
    return fail(asked, where, found.tensors()[i].words, ": element ", first, " is ", in_words(a[first]), " and ",
                in_words(b[first]));
  }
  return true;
}

/// Calls expect(case) for every case until one fails. An error of a case is a failure.
void each_case(std::string_view asked, const std::vector<OperationCase>& cases, auto expect) {
  if (cases.empty()) fail(asked, "cases()", "there is none");
  for (const OperationCase& one : cases)
    if (!report_errors(asked, one.words, [&] { return expect(one); })) return;
}

/// Calls expect(case, run, where) for a run of every case on every team, in the same way.
void each_run(std::string_view asked, const std::vector<OperationCase>& cases, auto expect) {
  each_case(asked, cases, [&](const OperationCase& one) {
    return std::ranges::all_of(team_sizes, [&](int threads) {
      const OperationRun run(one, threads);
      return expect(one, run, words_of(one, run.operation(), threads));
    });
  });
}

}  // namespace detail

/// Checks values against the float64 reference.
inline void check_operation_values(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation writes the values of its float64 reference, on any number of threads";
  const OperationCase* last = nullptr;
  std::vector<Numbers> expected;
  detail::each_run(asked, cases, [&](const OperationCase& one, const auto& run, const std::string& where) {
    if (std::exchange(last, &one) != &one) expected = one.reference(run.before);
    std::size_t output = 0;
    for (const OperationTensor& tensor : run.tensors()) {
      if (!tensor.written) continue;
      if (output == expected.size())
        return fail(asked, where, "the reference gives ", output, " tensors, and more are written");
      const Numbers& wanted = expected[output++];
      const Numbers found = tensor.values();
      if (found.size() != wanted.size())
        return fail(asked, where, tensor.words, " has ", found.size(), " elements, of the reference ", wanted.size());
      double largest = 1e-30;
      for (const double value : wanted) largest = std::max(largest, std::abs(value));
      const double bound = one.bound * tensor.bound * largest;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (!(std::abs(found[i] - wanted[i]) <= bound))
          return fail(asked, where, tensor.words, ": element ", i, " is ", in_words(found[i]), " instead of ",
                      in_words(wanted[i]), ", further away than ", bound);
    }
    return output == expected.size() ||
           fail(asked, where, "the reference gives ", expected.size(), " tensors, and ", output, " are written");
  });
}

/// Checks that the operation writes only outputs and scratch.
inline void check_operation_writes(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation writes the elements of its outputs, its scratch, and nothing else: no input, no gap between rows";
  detail::each_run(asked, cases, [&](const OperationCase&, const auto& run, const std::string& where) {
    if (!run.scratch_touched.empty()) return fail(asked, where, "scratch: ", run.scratch_touched);
    for (std::size_t i = 0; i < run.tensors().size(); ++i) {
      const OperationTensor& tensor = run.tensors()[i];
      if (const std::string touched = tensor.touched(); !touched.empty())
        return fail(asked, where, tensor.words, ": ", touched);
      if (!tensor.written && tensor.content() != run.content_before[i])
        return fail(asked, where, tensor.words, " has changed");
    }
    return true;
  });
}

/// Checks that results do not depend on the previous contents of outputs and scratch.
inline void check_operation_reads(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation reads neither its outputs nor its scratch before it has written them: its results are the same, "
      "whatever these held";
  detail::each_case(asked, cases, [&](const OperationCase& one) {
    const detail::OperationRun of_nan(one, 2), of_outputs(one, 2, 3.0f), of_scratch(one, 2, NAN, std::byte{0x3f});
    return detail::expect_same_outputs(asked, of_nan.words + ", outputs held 3, and NaN", of_outputs, of_nan) &&
           detail::expect_same_outputs(asked, of_nan.words + ", scratch held numbers, and NaN", of_scratch, of_nan);
  });
}

/// Checks that results are bit-identical for any number of threads.
inline void check_operation_teams(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked = "an operation gives the same bits on any number of threads";
  detail::each_case(asked, cases, [&](const OperationCase& one) {
    if (!one.same_bits) return true;
    const detail::OperationRun alone(one, 1);
    return std::ranges::all_of(std::array{2, 3}, [&](int threads) {
      return detail::expect_same_outputs(asked, detail::words_of(one, alone.operation(), threads) + ", and 1",
                                         detail::OperationRun(one, threads), alone);
    });
  });
}

/// Checks that tensors() lists everything that the operation reads and writes.
inline void check_operation_lists(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "tensors() lists all that an operation reads and writes: devices with queues order its work by that alone";
  detail::each_case(asked, cases, [&](const OperationCase& one) {
    const detail::OperationRun run(one, 1);
    for (const OperationTensor& tensor : run.tensors()) {
      if (tensor.bytes == 0) continue;
      bool listed = false, written = false;
      for (const AnyOperation::Listed& each : run.operation().listed) {
        listed = listed || each.data == tensor.data;
        written = written || (each.data == tensor.data && each.written);
      }
      if (!listed) return fail(asked, run.words, tensor.words, " is not listed");
      if (written != tensor.written)
        return fail(asked, run.words, tensor.words,
                    written ? " is listed as written" : " is listed as read alone, a Tensor<const T>");
    }
    return true;
  });
}

/// Checks that a dry run reports the operation's cost and scratch.
inline void check_operation_plans(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "a dry run counts of an operation, on device::Meta, the cost and the scratch that it has on the CPU";
  detail::each_case(asked, cases, [&](const OperationCase& one) {
    return std::ranges::all_of(detail::team_sizes, [&](int threads) {
      OperationMemory memory;
      const AnyOperation operation = one.make(memory);
      const std::string where = detail::words_of(one, operation, threads);
      device::Ledger ledger;
      device::Cpu::Arena nothing(ledger, 0);
      const std::int64_t bytes = round_up(operation.scratch_bytes({nothing, threads}), device::alignment);
      device::Cpu::Arena arena(ledger, bytes);
      device::Cpu::Stream stream(arena, threads);
      operation.on_cpu(stream);
      device::Meta::Arena planned = device::Meta::Arena::unbounded();
      device::Meta::Stream meta(planned, threads);
      operation.on_meta(meta);
      const device::Counters &found = meta.counters, &expected = stream.counters;
      return expect_value(asked, where, "the scratch in bytes, a multiple of 64,", planned.peak_scratch(), bytes) &&
             expect_value(asked, where, "the FLOPs of matmuls", found.matmul_flops, expected.matmul_flops) &&
             expect_value(asked, where, "the FLOPs of attention", found.attention_flops, expected.attention_flops) &&
             expect_value(asked, where, "the bytes that are moved", found.elementwise_bytes,
                          expected.elementwise_bytes) &&
             (found.matmul_flops + found.attention_flops + found.elementwise_bytes > 0 ||
              fail("cost() says what an operation costs", where, "neither FLOPs nor bytes"));
    });
  });
}

/// Checks that results are bit-identical if the operation is enqueued and runs later.
inline void check_operation_on_queues(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation that is enqueued and runs later, from a copy, gives the bits that it gives at once";
  detail::each_case(asked, cases, [&](const OperationCase& one) {
    const detail::OperationRun at_once(one, 1);
    OperationMemory memory;
    device::Ledger ledger;
    QueuedCpu::Arena arena(ledger, 1 << 22);
    QueuedCpu::Stream stream(arena, 1);
    one.make(memory).on_queue(stream);
    stream.synchronize();
    for (std::size_t i = 0; i < memory.tensors().size(); ++i)
      if (memory.tensors()[i].content() != at_once.tensors()[i].content())
        return fail(asked, at_once.words, memory.tensors()[i].words, " holds other values");
    return true;
  });
}

/// Checks that check() rejects tensors that do not fit together.
inline void check_operation_refuses(const std::vector<OperationCase>& refused) {
  constexpr std::string_view asked =
      "check() refuses tensors that do not fit together with a LogicError (InputError for what a user gave), before "
      "anything is counted";
  for (const OperationCase& one : refused) {
    OperationMemory memory;
    const AnyOperation operation = one.make(memory);
    const std::string where = detail::words_of(one, operation);
    device::Meta::Arena arena = device::Meta::Arena::unbounded();
    device::Meta::Stream stream(arena, 1);
    try {
      operation.on_meta(stream);
      return void(fail(asked, where, operation.has_check ? "no error was thrown" : "it has no check()"));
    } catch (const LogicError&) {
    } catch (const InputError&) {
    } catch (const std::exception& error) {
      return void(fail(asked, where, "an error of another type, which says \"", error.what(), "\""));
    }
    if (stream.counters.matmul_flops + stream.counters.elementwise_bytes > 0)
      return void(fail(asked, where, "its cost was counted"));
  }
}

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
