// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench matmul`: bf16 against float, each as this processor computes it, at 1024^3 and in the shapes of a
/// step.
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "../../fsdp/device/compute/cpu/widened_matmul.hpp"
#include "../../fsdp/device/cpu/isa.hpp"
#include "alone.hpp"
#include "lines.hpp"
#include "matmul_replay.hpp"
#include "rounds.hpp"

namespace fsdp::bench {
namespace {

using device::MatmulRecord;

constexpr std::int64_t ring_bytes = std::int64_t{128} << 20;

MatmulRecord in_float(MatmulRecord record) {
  record.operands = record.result = DType::f32;
  return record;
}

}  // namespace

int measure_matmul(const BenchOptions& options) {
  const int threads = comm::planned_threads(options.launch.threads, 1);
  const std::int64_t tokens = options.seq_len > 0 ? options.seq_len : 2048;
  const std::int64_t intermediate = options.intermediate > 0 ? options.intermediate : 2816;
  std::vector<MatmulRecord> records = projection(DType::bf16, 1024, 1024, 1024);
  for (const MatmulRecord& record : projection(DType::bf16, tokens, options.hidden, options.hidden))
    records.push_back(record);
  for (const MatmulRecord& record : projection(DType::bf16, tokens, options.hidden, 2 * intermediate))
    records.push_back(record);
  for (const MatmulRecord& record : projection(DType::bf16, tokens, intermediate, options.hidden))
    records.push_back(record);
  const bool by_float = device::cpu::goes_by_float({.a = DType::bf16});
  for (const MatmulRecord& record : records) {
    MatmulReplay<device::Cpu> half({record}, ring_bytes, threads), real({in_float(record)}, ring_bytes, threads);
    Rounds rounds;
    rounds.add([&] { half.run(); });
    rounds.add([&] { real.run(); });
    rounds.run(options.repeats);
    Line("matmul")
        .add("m", record.m)
        .add("n", record.n)
        .add("k", record.k)
        .add("a_transposed", record.a_transposed)
        .add("b_transposed", record.b_transposed)
        .add("accumulate", record.accumulate)
        .add("way", by_float ? "float" : "native")  // native, or by conversion to float
        .add("isa", device::cpu::name_of(device::cpu::detected_isa()))
        .add("threads", threads)
        .add("gflops", half.flops() / rounds.median_seconds(0) / 1e9)
        .add("float_gflops", real.flops() / rounds.median_seconds(1) / 1e9)
        .add("ratio", rounds.median_ratio(1, 0))
        .print();
  }
  return 0;
}

}  // namespace fsdp::bench
