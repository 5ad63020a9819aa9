// SPDX-License-Identifier: Apache-2.0
/// @file
/// The gradients' squared norm in integers. Each thread has one partial result, because integers may be added in any
/// order.
#include <algorithm>
#include <cstdint>

#include <tessera/fsdp/device/cpu.hpp>

#include "../optimizer_step.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {

std::int64_t scratch(const Cpu::Planner& planner, const LargestMagnitude&) {
  return planner.threads() * std::int64_t{sizeof(std::int64_t)};
}

void run(Cpu::Stream& stream, const LargestMagnitude& op, Scratch memory) {
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const Tensor<std::int64_t> partials = memory.as<std::int64_t>({stream.threads()});
  std::fill_n(partials.data(), partials.numel(), 0);
  const cpu::Division elements{.count = op.x.numel(), .step = 64, .bytes = op.cost().bytes};
  cpu::for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int part) {
    partials[part] = kernel.largest_magnitude(op.x.data() + begin, end - begin);
  });
  for (std::int64_t part = 0; part < partials.numel(); ++part)
    op.largest.data()[0] = larger_of(op.largest.data()[0], partials[part]);
}

std::int64_t scratch(const Cpu::Planner& planner, const FixedPointSquares&) {
  return planner.threads() * std::int64_t{sizeof(FixedPointSum)};
}

void run(Cpu::Stream& stream, const FixedPointSquares& op, Scratch memory) {
  std::int64_t largest = 0;
  for (std::int64_t rank = 0; rank < op.largest.numel(); ++rank)
    largest = larger_of(largest, op.largest.data()[op.largest_stride() * rank]);
  if (largest >= infinity_bits) return;
  const double scale = fixed_point_scale(largest);
  const auto& kernel = cpu::kernels<cpu::OptimizerKernels>();
  const Tensor<FixedPointSum> partials = memory.as<FixedPointSum>({stream.threads()});
  std::fill_n(partials.data(), partials.numel(), FixedPointSum());
  const cpu::Division elements{.count = op.x.numel(), .step = 64, .bytes = op.cost().bytes};
  cpu::for_parts(stream, elements, [&](std::int64_t begin, std::int64_t end, int part) {
    FixedPointSum sum;
    for (std::int64_t at = begin; at < end; at += sum_chunk) {
      const cpu::SplitSum found = kernel.fixed_point_squares(op.x.data() + at, scale, std::min(sum_chunk, end - at));
      sum.add(((found.coarse & 0xfff) << 20) + found.fine, found.coarse >> 12);
    }
    partials[part] = sum;
  });
  std::int64_t* const sum = op.sum.data();
  FixedPointSum total{.low = sum[0], .high = sum[1]};
  for (std::int64_t part = 0; part < partials.numel(); ++part) total.add(partials[part].low, partials[part].high);
  sum[0] = total.low;
  sum[1] = total.high;
}

}  // namespace fsdp::device
