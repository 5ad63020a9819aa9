// SPDX-License-Identifier: Apache-2.0
/// @file
/// Codecs over one long tensor of floats: source bytes per second of encoding and decoding compared with a copy of the
/// source; and AdamW's steps with encoded moments compared with its step with moments in float.
#include <cstdint>
#include <string_view>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/precision/codec.hpp>

#include "../src/program/calibrate/computations.hpp"
#include "bounds.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace fsdp::bench {
namespace {

using calibrate::fill_uniform;
using device::Cpu;
using device::enqueue;

/// A stream of operations on tensors of `count` elements.
struct Elements {
  Elements(std::int64_t elements, int threads) : count(elements), stream(arena, threads) {}

  Tensor<float> floats(float scale) {
    const auto tensor = memory.make<float>({count});
    fill_uniform(tensor, scale);
    return tensor;
  }
  Tensor<std::byte> bytes(std::int64_t size) {
    const auto tensor = memory.make<std::uint8_t>({size});
    return {reinterpret_cast<std::byte*>(tensor.data()), tensor.shape()};
  }

  std::int64_t count;
  device::Ledger ledger;
  Cpu::Arena arena{ledger, 1 << 16};
  Cpu::Stream stream;
  calibrate::Tensors<Cpu> memory;
};

template <class C>
void measure(const BenchOptions& options, std::uint64_t key) {
  Elements of(options.parameters, options.threads());
  const C codec;
  const Tensor<float> x = of.floats(1), y = of.floats(1);
  const Tensor<std::byte> bytes = of.bytes(codec.bytes(of.count));
  Rounds rounds;
  const std::size_t copy = rounds.add([&] { enqueue(of.stream, device::Copy<float>{.x = x, .y = y}); });
  const std::size_t encode = rounds.add([&] { codec.encode(of.stream, Tensor<const float>(x), bytes, {.key = key}); });
  const std::size_t decode = rounds.add([&] { codec.decode(of.stream, Tensor<const std::byte>(bytes), y); });
  const std::size_t add = rounds.add([&] { codec.add_decoded(of.stream, bytes, y); });
  rounds.run(options.repeats);
  Line("codec")
      .add("codec", codec.text(), "stochastic", key != 0, "threads", options.threads(), "elements", of.count)
      .add("copy_gb_per_second", static_cast<double>(x.bytes()) / rounds.median_seconds(copy) * 1e-9)
      .add("encode_ratio", rounds.median_ratio(copy, encode), "decode_ratio", rounds.median_ratio(copy, decode))
      .add("add_ratio", rounds.median_ratio(copy, add))
      .print();
}

void measure_moments(const BenchOptions& options) {
  using device::MomentForm;
  Elements of(options.parameters, options.threads());
  const device::StepDecision decision{.taken = 1, .lr = 1e-4};
  const Tensor<float> main = of.floats(0.02f), gradient = of.floats(1e-3f), m = of.floats(0), v = of.floats(0);
  Rounds rounds;
  const std::size_t plain = rounds.add([&] {
    enqueue(of.stream,
            device::AdamWStep<float>{
                .step = {&decision, {1}}, .main = main, .first_moment = m, .second_moment = v, .gradient = gradient});
  });
  std::size_t coded[2];
  for (const MomentForm form : {MomentForm::bf16, MomentForm::dynamic8}) {
    const std::int64_t size = device::moment_bytes(form, of.count);
    coded[static_cast<int>(form)] = rounds.add([&, form, first = of.bytes(size), second = of.bytes(size)] {
      enqueue(of.stream, device::CodedAdamWStep<float>{.step = {&decision, {1}},
                                                       .main = main,
                                                       .first_moment = first,
                                                       .second_moment = second,
                                                       .form = form,
                                                       .gradient = gradient,
                                                       .draw = {.key = 1}});
    });
  }
  rounds.run(options.repeats);
  Line("moments")
      .add("threads", options.threads(), "parameters", of.count, "float_ms", rounds.median_seconds(plain) * 1e3)
      .add("bf16_ratio", rounds.median_ratio(coded[0], plain), "dynamic8_ratio", rounds.median_ratio(coded[1], plain))
      .print();
}

}  // namespace

void measure_codec(const BenchOptions& options, const train::FlagSet&) {
  for (const std::uint64_t key : {0u, 1u}) {
    measure<Int8Blocks<256>>(options, key);
    measure<Fp8Blocks<256>>(options, key);
  }
  measure<Dynamic8<256>>(options, 0);
  measure<Nf4Blocks<64>>(options, 0);
  measure_moments(options);
}

}  // namespace fsdp::bench
