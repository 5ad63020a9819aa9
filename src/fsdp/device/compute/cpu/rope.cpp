// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rotary position embedding (Su et al. 2021), Hugging Face's rotate_half layout.
#include <algorithm>
#include <cmath>

#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "../rotary_frequency.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {

void run(Cpu::Stream& stream, const RotaryTable& op) {
  const Tensor<float>& table = op.table;
  const std::int64_t half = table.columns() / 2;
  const bool listed = op.positions.numel() > 0;
  const cpu::Division rows{.count = table.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = rotary_frequency(static_cast<double>(op.theta), op.scaling, i, table.columns());
      for (std::int64_t row = begin; row < end; ++row) {
        const double angle = static_cast<double>(listed ? op.positions.data()[row] : row) * frequency;
        table.row(row)[i] = static_cast<float>(op.scaling.magnitude * std::cos(angle));
        table.row(row)[half + i] = static_cast<float>(op.scaling.magnitude * std::sin(angle));
      }
    }
  });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Rope<T>& op) {
  const Tensor<T>& x = op.x;
  const Tensor<const float>& table = op.table;
  const auto& kernel = cpu::kernels<cpu::RowKernels>().of<T>();
  const float sign = op.rotation == Rotation::forward ? 1.0f : -1.0f;
  const std::int64_t head_dim = table.columns();
  const cpu::Division tokens{.count = x.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, tokens, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end;) {
      const Document document = document_of(op.documents, table.rows(), token);
      for (; token < std::min(end, document.end); ++token)
        kernel.rotate(x.row(token), table.row(token - document.begin), sign, x.columns() / head_dim, head_dim);
    }
  });
}

FSDP_RUN_INSTANCES(Cpu, Rope)

}  // namespace fsdp::device
