// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/operation.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::testing {
namespace {

constexpr int team_sizes[] = {1, 2, 3};

std::string words_of(const OperationCase& one, const AnyOperation& operation) {
  return message(operation.name, ", ", one.words);
}
std::string words_of(const OperationCase& one, const AnyOperation& operation, int threads) {
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
bool expect_same_outputs(std::string_view asked, std::string_view where, const OperationRun& found,
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

}  // namespace

void check_operation_values(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation writes the values of its float64 reference, on any number of threads";
  const OperationCase* last = nullptr;
  std::vector<Numbers> expected;
  each_run(asked, cases, [&](const OperationCase& one, const auto& run, const std::string& where) {
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

void check_operation_writes(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation writes the elements of its outputs, its scratch, and nothing else: no input, no gap between rows";
  each_run(asked, cases, [&](const OperationCase&, const auto& run, const std::string& where) {
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

void check_operation_reads(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation reads neither its outputs nor its scratch before it has written them: its results are the same, "
      "whatever these held";
  each_case(asked, cases, [&](const OperationCase& one) {
    const OperationRun of_nan(one, 2), of_outputs(one, 2, 3.0f), of_scratch(one, 2, NAN, std::byte{0x3f});
    return expect_same_outputs(asked, of_nan.words + ", outputs held 3, and NaN", of_outputs, of_nan) &&
           expect_same_outputs(asked, of_nan.words + ", scratch held numbers, and NaN", of_scratch, of_nan);
  });
}

void check_operation_teams(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked = "an operation gives the same bits on any number of threads";
  each_case(asked, cases, [&](const OperationCase& one) {
    if (!one.same_bits) return true;
    const OperationRun alone(one, 1);
    return std::ranges::all_of(std::array{2, 3}, [&](int threads) {
      return expect_same_outputs(asked, words_of(one, alone.operation(), threads) + ", and 1",
                                 OperationRun(one, threads), alone);
    });
  });
}

void check_operation_lists(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "tensors() lists all that an operation reads and writes: devices with queues order its work by that alone";
  each_case(asked, cases, [&](const OperationCase& one) {
    const OperationRun run(one, 1);
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

void check_operation_plans(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "a dry run counts of an operation, on device::Meta, the cost and the scratch that it has on the CPU";
  each_case(asked, cases, [&](const OperationCase& one) {
    return std::ranges::all_of(team_sizes, [&](int threads) {
      OperationMemory memory;
      const AnyOperation operation = one.make(memory);
      const std::string where = words_of(one, operation, threads);
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

void check_operation_on_queues(const std::vector<OperationCase>& cases) {
  constexpr std::string_view asked =
      "an operation that is enqueued and runs later, from a copy, gives the bits that it gives at once";
  each_case(asked, cases, [&](const OperationCase& one) {
    const OperationRun at_once(one, 1);
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

void check_operation_refuses(const std::vector<OperationCase>& refused) {
  constexpr std::string_view asked =
      "check() refuses tensors that do not fit together with a LogicError (InputError for what a user gave), before "
      "anything is counted";
  for (const OperationCase& one : refused) {
    OperationMemory memory;
    const AnyOperation operation = one.make(memory);
    const std::string where = words_of(one, operation);
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

}  // namespace fsdp::testing
