// SPDX-License-Identifier: Apache-2.0
/// @file
/// Codes in blocks, and AdamW on encoded moments: each thread has a range of blocks.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/device/cpu.hpp>

#include "../optimizer_step.hpp"
#include "kernels/tables.hpp"
#include "threads.hpp"

namespace fsdp::device {
namespace {

const cpu::CodecKernels& codec_kernels() { return cpu::kernels<cpu::CodecKernels>(); }

}  // namespace

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const EncodeBlocks<T>& op) {
  cpu::for_parts(stream, {.count = op.x.numel(), .step = op.code.elements, .bytes = op.cost().bytes},
                 [&](std::int64_t begin, std::int64_t end, int) {
                   codec_kernels().of<T>().encode(op.code, op.x.data() + begin, op.y.data() + op.code.bytes(begin),
                                                  end - begin, {.key = op.draw.key, .first = op.draw.first + begin});
                 });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const DecodeBlocks<T>& op) {
  cpu::for_parts(stream, {.count = op.y.numel(), .step = op.code.elements, .bytes = op.cost().bytes},
                 [&](std::int64_t begin, std::int64_t end, int) {
                   codec_kernels().of<T>().decode(op.code, op.x.data() + op.code.bytes(begin), op.y.data() + begin,
                                                  end - begin, op.write == Write::accumulate);
                 });
}

template <ComputedBy<Cpu> Model>
void run(Cpu::Stream& stream, const CodedAdamWStep<Model>& op) {
  if (op.step[0].skipped != 0) return cpu::round_again(stream, op.main, op.model);
  const AdamWFactors factors(op.rules, op.step[0]);
  cpu::for_parts(stream, {.count = op.main.numel(), .step = first_moment_code.elements, .bytes = op.cost().bytes},
                 [&](std::int64_t begin, std::int64_t end, int) {
                   const std::int64_t byte = moment_bytes(op.form, begin);
                   bf16* const model = cpu::rounded(op.model.data());
                   const cpu::CodedRange range{.main = op.main.data() + begin,
                                               .first_moment = op.first_moment.data() + byte,
                                               .second_moment = op.second_moment.data() + byte,
                                               .gradient = op.gradient.data() + begin,
                                               .model = model == nullptr ? nullptr : model + begin,
                                               .count = end - begin};
                   if (op.form == MomentForm::dynamic8)
                     codec_kernels().dynamic8_adamw(factors, range);
                   else
                     codec_kernels().bf16_adamw(factors, range, step_draw(op.draw, begin, op.step[0]));
                 });
}

FSDP_RUN_INSTANCES(Cpu, EncodeBlocks)
FSDP_RUN_INSTANCES(Cpu, DecodeBlocks)
FSDP_RUN_INSTANCES(Cpu, CodedAdamWStep)

}  // namespace fsdp::device
