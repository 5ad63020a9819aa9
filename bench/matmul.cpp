// SPDX-License-Identifier: Apache-2.0
/// @file
/// Matmuls in bf16 compared with float, each as this processor computes it, for 1024^3 and for the shapes of a step.
#include <array>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "../src/fsdp/device/compute/cpu/widened_matmul.hpp"
#include "../src/fsdp/device/cpu/isa.hpp"
#include "../src/program/calibrate/computations.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {

using device::MatmulRecord;

void measure_matmul(const BenchOptions& options, const train::FlagSet&) {
  const std::int64_t tokens = options.seq_len > 0 ? options.seq_len : 2048, hidden = options.hidden;
  const std::int64_t intermediate = options.intermediate > 0 ? options.intermediate : 2816;
  std::vector<MatmulRecord> records;
  for (const auto [rows, in, out] : {std::array<std::int64_t, 3>{1024, 1024, 1024},
                                     {tokens, hidden, hidden},
                                     {tokens, hidden, 2 * intermediate},
                                     {tokens, intermediate, hidden}})
    for (const MatmulRecord& record : calibrate::projection(DType::bf16, rows, in, out)) records.push_back(record);
  const bool by_float = device::cpu::multiplies_in_float({.a = DType::bf16});
  for (const MatmulRecord& record : records) {
    MatmulRecord in_float = record;
    in_float.operands = in_float.result = DType::f32;
    constexpr std::int64_t ring_bytes = std::int64_t{128} << 20;
    calibrate::MatmulReplay<device::Cpu> half({record}, ring_bytes, options.threads());
    calibrate::MatmulReplay<device::Cpu> real({in_float}, ring_bytes, options.threads());
    Rounds rounds;
    rounds.add([&] { half.run(); });
    rounds.add([&] { real.run(); });
    rounds.run(options.repeats);
    Line("matmul")
        .add("m", record.m, "n", record.n, "k", record.k, "a_transposed", record.a_transposed)
        .add("b_transposed", record.b_transposed, "accumulate", record.accumulate)
        .add("way", by_float ? "float" : "native")  // native bf16, or by conversion to float
        .add("isa", device::cpu::name_of(device::cpu::detected_isa()), "threads", options.threads())
        .add("gflops", half.flops() / rounds.median_seconds(0) / 1e9)
        .add("float_gflops", real.flops() / rounds.median_seconds(1) / 1e9, "ratio", rounds.median_ratio(1, 0))
        .print();
  }
}

}  // namespace fsdp::bench
