// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counters and memory use after operations, to compare devices that compute with devices that only count.
#pragma once

#include <cstdint>
#include <ostream>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::device::reference {

struct Trace {
  std::int64_t matmul_flops = 0, attention_flops = 0, elementwise_bytes = 0, peak = 0, peak_scratch = 0, used = 0;
  friend bool operator==(const Trace&, const Trace&) = default;
};

inline std::ostream& operator<<(std::ostream& out, const Trace& t) {
  return out << t.matmul_flops << " flops, " << t.attention_flops << " in attention, " << t.elementwise_bytes
             << " bytes, peak " << t.peak << " with scratch " << t.peak_scratch << ", used " << t.used;
}

template <class Arena, class Stream>
Trace left_by(const Arena& arena, const Stream& stream) {
  return {stream.counters.matmul_flops,
          stream.counters.attention_flops,
          stream.counters.elementwise_bytes,
          arena.peak(),
          arena.peak_scratch(),
          arena.used()};
}

/// Runs `operation(device, arena, stream)`, which allocates its own inputs: the arena starts empty.
template <class Device, class Operation>
Trace trace(typename Device::Arena arena, int threads, const Operation& operation) {
  typename Device::Stream stream(arena, threads);
  operation(Device(), arena, stream);
  if constexpr (Device::asynchronous) stream.synchronize();
  return left_by(arena, stream);
}

/// Checks that Device, which computes, and Dry, its dry run, count the same work and use the same memory.
template <class Device, class Dry, class Operation>
void expect_equal_costs(const char* name, typename Device::Arena arena, int threads, const Operation& operation) {
  const Trace found = trace<Device>(std::move(arena), threads, operation);
  EXPECT_EQ(found, trace<Dry>(Dry::Arena::unbounded(), threads, operation)) << name << ", threads " << threads;
  EXPECT_GT(found.matmul_flops + found.attention_flops + found.elementwise_bytes, 0) << name;
}

/// Allocates tensors in a device's arena, zeroed if it has storage.
template <class Device>
struct Maker {
  typename Device::Arena& arena;
  typename Device::Stream& stream;

  template <class T>
  Tensor<T> make(const Shape& shape) const {
    const Tensor<T> tensor = arena.template allocate<T>(Device::Arena::End::low, shape);
    if constexpr (!Device::counts_only)
      enqueue(stream, Fill<std::conditional_t<std::is_same_v<T, bf16>, bf16, float>>{.y = filled(tensor), .value = 0});
    stream.counters = {};
    return tensor;
  }

 private:
  template <class T>
  static auto filled(const Tensor<T>& tensor) {
    if constexpr (std::is_same_v<T, bf16>)
      return tensor;
    else
      return Tensor<float>(reinterpret_cast<float*>(tensor.data()), {tensor.bytes() / 4});
  }
};

/// Operands of operations on activations, with rows of 96 columns.
template <class T>
struct TracedTensors {
  Tensor<T> x, y, z;            // [rows, 96]
  Tensor<T> w;                  // [96]
  Tensor<float> wide;           // [rows, 96]
  Tensor<float> sums;           // [96]
  Tensor<float> rstd;           // [3 rows]
  Tensor<float> table;          // [18, 16]
  Tensor<std::int32_t> tokens;  // [rows]
  Tensor<double> total;         // [1]
  Tensor<double> state;         // [rows, 3]

  template <class Device>
  TracedTensors(const Maker<Device>& maker, std::int64_t rows)
      : x(maker.template make<T>({rows, 96})),
        y(maker.template make<T>({rows, 96})),
        z(maker.template make<T>({rows, 96})),
        w(maker.template make<T>({96})),
        wide(maker.template make<float>({rows, 96})),
        sums(maker.template make<float>({96})),
        rstd(maker.template make<float>({3 * rows})),
        table(maker.template make<float>({18, 16})),
        tokens(maker.template make<std::int32_t>({rows})),
        total(maker.template make<double>({1})),
        state(maker.template make<double>({rows, 3})) {}
};

/// Calls expect(name, operation) for each operation on activations, as `trace` runs one.
template <class T, class Expect>
void for_each_traced_operation(std::int64_t rows, CumulativeLengths documents, const Expect& expect) {
  const auto on = [&](const char* name, const auto& body) {
    expect(name, [&](auto device, auto& arena, auto& stream) {
      body(stream, TracedTensors<T>(Maker<decltype(device)>{arena, stream}, rows));
    });
  };
  on("rms_norm", [&](auto& s, const auto& t) {
    enqueue(s, RmsNorm<T>{.x = t.x, .weight = t.w, .eps = 1, .y = t.y, .rstd = t.rstd.slice(0, rows)});
  });
  for (const Write write : {Write::overwrite, Write::accumulate})
    for (const Tensor<float>& dw : {Tensor<float>(), Tensor<float>(nullptr, {96})})
      on("rms_norm_backward", [&](auto& s, const auto& t) {
        enqueue(s, RmsNormBackward<T>{.x = t.x,
                                      .weight = t.w,
                                      .rstd = t.rstd.slice(0, rows),
                                      .dy = t.y,
                                      .dx = t.z,
                                      .dx_write = write,
                                      .dw = dw.numel() > 0 ? dw : t.sums,
                                      .dw_write = write});
      });
  on("rms_norm of heads", [](auto& s, const auto& t) {
    const Tensor<const T> w = t.w.slice(0, 32);
    enqueue(s, RmsNorm<T>{.x = t.x, .weight = w, .eps = 1, .y = t.y, .rstd = t.rstd});
    enqueue(s,
            RmsNormBackward<T>{.x = t.x, .weight = w, .rstd = t.rstd, .dy = t.y, .dx = t.z, .dw = t.sums.slice(0, 32)});
  });
  on("rms_norm with a weight in float", [&](auto& s, const auto& t) {
    const Tensor<float> rstd = t.rstd.slice(0, rows);
    enqueue(s, RmsNorm<T, float>{.x = t.x, .weight = t.sums, .eps = 1, .y = t.y, .rstd = rstd});
    enqueue(s, RmsNormBackward<T, float>{.x = t.x, .weight = t.sums, .rstd = rstd, .dy = t.y, .dx = t.z, .dw = t.sums});
    enqueue(s, Embedding<T, float>{.table = t.wide, .tokens = t.tokens, .out = t.x});
  });
  on("bias", [](auto& s, const auto& t) {
    enqueue(s, AddBias<T>{.bias = t.w, .y = t.x});
    enqueue(s, BiasBackward<T>{.dy = t.x, .dbias = t.sums});
  });
  on("rope", [&](auto& s, const auto& t) {
    enqueue(s, RotaryTable{.theta = 1e4f, .table = t.table});
    enqueue(s, Rope<T>{.x = t.x, .table = t.table, .documents = documents});
  });
  on("scale", [](auto& s, const auto& t) {
    const Dropout dropout{.rate = 0.5f, .key = 1};
    enqueue(s, Scale<T>{.x = t.x, .y = t.y, .factor = 2});
    enqueue(s, Scale<T>{.x = t.x, .y = t.y, .factor = 2, .write = Write::accumulate, .dropout = dropout});
  });
  on("swiglu", [](auto& s, const auto& t) { enqueue(s, SwiGlu<T>{.gate = t.x, .up = t.y, .h = t.z}); });
  on("swiglu_backward",
     [](auto& s, const auto& t) { enqueue(s, SwiGluBackward<T>{.gate = t.x, .up = t.y, .dh = t.z}); });
  on("embedding",
     [](auto& s, const auto& t) { enqueue(s, Embedding<T>{.table = t.x, .tokens = t.tokens, .out = t.y}); });
  for (const Write write : {Write::overwrite, Write::accumulate})
    on("embedding_backward", [&](auto& s, const auto& t) {
      enqueue(s, EmbeddingBackward<T>{.tokens = t.tokens, .dy = t.x, .dtable = t.wide, .write = write});
    });
  on("cross_entropy", [](auto& s, const auto& t) {
    enqueue(s, CrossEntropy<T>{.logits = t.x, .targets = t.tokens, .scale = 1, .loss = t.total});
  });
  on("cross_entropy_loss", [](auto& s, const auto& t) {
    enqueue(s, CrossEntropyLoss<T>{.logits = t.x, .targets = t.tokens, .loss = t.total});
  });
  on("cross_entropy in blocks of columns", [](auto& s, const auto& t) {
    enqueue(s, CrossEntropyFold<T>{.logits = t.x, .first = 0, .targets = t.tokens, .state = t.state});
    enqueue(s, CrossEntropySum{.state = t.state, .loss = t.total});
    enqueue(s, CrossEntropyGradient<T>{.logits = t.x, .first = 0, .targets = t.tokens, .scale = 1, .state = t.state});
  });
  on("add", [](auto& s, const auto& t) { enqueue(s, Add<T>{.x = t.x, .y = t.y}); });
  on("copy", [](auto& s, const auto& t) { enqueue(s, Copy<T, float>{.x = t.x, .y = t.wide}); });
  on("fill", [](auto& s, const auto& t) { enqueue(s, Fill<T>{.y = t.x, .value = 1}); });
}

/// Attention, forward and backward.
template <class T>
auto traced_attention(const AttentionShape& shape) {
  return [shape](auto device, auto& arena, auto& stream) {
    const Maker<decltype(device)> maker{arena, stream};
    const Tensor<T> q = maker.template make<T>(shape.queries()), out = maker.template make<T>(shape.queries());
    const Tensor<T> k = maker.template make<T>(shape.keys()), v = maker.template make<T>(shape.keys());
    const Tensor<float> lse = maker.template make<float>({shape.sequences * shape.heads, shape.sequence_length});
    enqueue(stream, Attention<T>{.shape = shape, .q = q, .k = k, .v = v, .out = out, .lse = lse});
    enqueue(
        stream,
        AttentionBackward<T>{
            .shape = shape, .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = out, .dq = q, .dk = k, .dv = v});
  };
}

/// AdamW and the decision of its step.
template <class Model>
auto traced_optimizer() {
  return [](auto device, auto& arena, auto& stream) {
    const Maker<decltype(device)> maker{arena, stream};
    const Tensor<float> x = maker.template make<float>({50001});
    const Tensor<Model> model = std::is_same_v<Model, float> ? Tensor<Model>() : maker.template make<Model>({50001});
    const Tensor<StepDecision> step = maker.template make<StepDecision>({1});
    const Tensor<double> sums = maker.template make<double>({1, 2});
    const Tensor<std::int64_t> largest = maker.template make<std::int64_t>({1});
    const Tensor<std::int64_t> exact = maker.template make<std::int64_t>({1, 2});
    const Tensor<StepInputs> inputs = maker.template make<StepInputs>({1});
    enqueue(stream, SumOfSquares{.x = x, .sum = sums});
    enqueue(stream, DecideStep{.inputs = inputs, .sums = sums, .step = step});
    enqueue(stream, LargestMagnitude{.x = x, .largest = largest});
    enqueue(stream, FixedPointSquares{.x = x, .largest = largest, .sum = exact});
    enqueue(stream, DecideStep{.inputs = inputs, .sums = sums, .largest = largest, .exact = exact, .step = step});
    enqueue(stream, AdamWStep<Model>{
                        .step = step, .main = x, .first_moment = x, .second_moment = x, .gradient = x, .model = model});
  };
}

}  // namespace fsdp::device::reference
