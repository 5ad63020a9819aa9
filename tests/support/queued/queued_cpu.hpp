// SPDX-License-Identifier: Apache-2.0
/// @file
/// An asynchronous device on the CPU: what a GPU does to the order of things, where every access is checked.
///
/// Operations are the CPU's, with its bits. They run later, on threads of their own, and each says what it touches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/transfer.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/device.hpp>
#include <fsdp/device/meta.hpp>

#include <support/queued/queue.hpp>

namespace fsdp::test {

struct QueuedCpu {
  static constexpr std::string_view name = "queued-cpu";
  static constexpr bool counts_only = false;
  static constexpr bool asynchronous = true;
  static constexpr bool overlaps = true;
  static constexpr bool host_memory = false;  // as on a GPU
  using Arena = device::Arena<QueuedCpu>;
  using Event = QueuedEvent;
  using Queue = WorkQueue;
  using Graph = WorkGraph;
  class Stream;
  using Cpu = device::Cpu;
  template <class T>
  using Operand = device::Operand<T>;
  using AttentionShape = device::AttentionShape;
  using AdamWRules = device::AdamWRules;
  using StepRules = device::StepRules;
  using StepInputs = device::StepInputs;
  using StepDecision = device::StepDecision;
  using Rotation = device::Rotation;
  using CumulativeLengths = device::CumulativeLengths;

  static std::byte* allocate(std::int64_t bytes) {
    std::byte* const data = Cpu::allocate(bytes);
    MemoryOrder::instance().watch(data, bytes);
    return data;
  }
  /// As a GPU does, waits for all queues first.
  static void deallocate(std::byte* data, std::int64_t bytes) {
    WorkQueue::drain_all();
    MemoryOrder::instance().forget(data, bytes);
    Cpu::deallocate(data, bytes);
  }
  static void poison(std::byte*, std::int64_t) {}  // queues may still use what the host gave back
  static void unpoison(std::byte*, std::int64_t) {}
  static std::byte* unbacked(std::int64_t) { return nullptr; }
  /// Accesses in no order, in words, since the last call.
  static std::vector<std::string> take_races() { return MemoryOrder::instance().take_races(); }

  static Graph capture(Queue& queue, const std::function<void()>& ask) { return queue.capture(ask); }

  static void move(Queue& queue, const std::byte* from, std::byte* to, std::int64_t bytes) {
    const std::array accesses{Access{from, bytes, false}, Access{to, bytes, true}};
    queue.submit("move", accesses, [=](Cpu::Stream& cpu) { Cpu::move(cpu, from, to, bytes); });
  }
  static void round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
    require(wire == DType::bf16, "round: to bf16 alone");
    const std::array accesses{Access{from, count * 4, false}, Access{to, count * 2, true}};
    queue.submit("round", accesses,
                 [=](Cpu::Stream&) { comm::round_to_bf16(from, count, reinterpret_cast<bf16*>(to)); });
  }
  static void sum_in_order(Queue& queue, std::span<const std::byte* const> parts, DType stored, DType wire,
                           std::int64_t count, Write write, float* sum) {
    std::vector<Access> accesses;
    std::vector<comm::Contribution> contributions;
    for (const std::byte* part : parts) {
      accesses.push_back({part, count * size_of(stored), false});
      contributions.push_back({part, stored});
    }
    accesses.push_back({sum, count * 4, true});
    queue.submit("sum_in_order", accesses, [=, contributions = std::move(contributions)](Cpu::Stream&) {
      comm::sum_in_order(contributions, wire, count, write, sum);
    });
  }

  template <class A, class C>
  static void matmul(Stream& s, Operand<A> a, Operand<A> b, Tensor<C> c, Write write = Write::overwrite) {
    run(
        s, "matmul", [](auto&... x) { Cpu::matmul<A, C>(x...); }, a, b, c, write);
  }
  template <class T>
  static void rms_norm(Stream& s, Tensor<const T> x, Tensor<const T> w, float eps, Tensor<T> y, Tensor<float> rstd) {
    run(
        s, "rms_norm", [](auto&... a) { Cpu::rms_norm<T>(a...); }, x, w, eps, y, rstd);
  }
  template <class T>
  static void rms_norm_backward(Stream& s, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd,
                                Tensor<const T> dy, Tensor<T> dx, Write dx_write, Tensor<float> dw, Write dw_write) {
    run(
        s, "rms_norm_backward", [](auto&... a) { Cpu::rms_norm_backward<T>(a...); }, x, w, rstd, dy, dx, dx_write, dw,
        dw_write);
  }
  static void rotary_table(Stream& s, float theta, Tensor<float> table) {
    run(
        s, "rotary_table", [](auto&... a) { Cpu::rotary_table(a...); }, theta, table);
  }
  template <class T>
  static void rope(Stream& s, Tensor<T> x, Tensor<const float> table, Rotation rotation,
                   CumulativeLengths documents = {}) {
    run(
        s, "rope", [](auto&... a) { Cpu::rope<T>(a...); }, x, table, rotation, documents);
  }
  template <class T>
  static void attention(Stream& s, const AttentionShape& shape, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v,
                        Tensor<T> out, Tensor<float> lse) {
    run(
        s, "attention", [](auto&... a) { Cpu::attention<T>(a...); }, shape, q, k, v, out, lse);
  }
  template <class T>
  static void attention_backward(Stream& s, const AttentionShape& shape, Tensor<const T> q, Tensor<const T> k,
                                 Tensor<const T> v, Tensor<const T> out, Tensor<const float> lse, Tensor<const T> dout,
                                 Tensor<T> dq, Tensor<T> dk, Tensor<T> dv) {
    run(
        s, "attention_backward", [](auto&... a) { Cpu::attention_backward<T>(a...); }, shape, q, k, v, out, lse, dout,
        dq, dk, dv);
  }
  template <class T>
  static void swiglu(Stream& s, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h) {
    run(
        s, "swiglu", [](auto&... a) { Cpu::swiglu<T>(a...); }, gate, up, h);
  }
  template <class T>
  static void swiglu_backward(Stream& s, Tensor<T> gate, Tensor<T> up, Tensor<T> dh) {
    run(
        s, "swiglu_backward", [](auto&... a) { Cpu::swiglu_backward<T>(a...); }, gate, up, dh);
  }
  template <class T>
  static void embedding(Stream& s, Tensor<const T> table, Tensor<const std::int32_t> tokens, Tensor<T> out) {
    run(
        s, "embedding", [](auto&... a) { Cpu::embedding<T>(a...); }, table, tokens, out);
  }
  template <class T>
  static void embedding_backward(Stream& s, Tensor<const std::int32_t> tokens, Tensor<const T> dy, Tensor<float> dtable,
                                 Write write) {
    run(
        s, "embedding_backward", [](auto&... a) { Cpu::embedding_backward<T>(a...); }, tokens, dy, dtable, write);
  }
  template <class T>
  static void cross_entropy(Stream& s, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale,
                            Tensor<double> loss) {
    run(
        s, "cross_entropy", [](auto&... a) { Cpu::cross_entropy<T>(a...); }, logits, targets, scale, loss);
  }
  template <class T>
  static void cross_entropy_loss(Stream& s, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                                 Tensor<double> loss) {
    run(
        s, "cross_entropy_loss", [](auto&... a) { Cpu::cross_entropy_loss<T>(a...); }, logits, targets, loss);
  }
  static constexpr std::int64_t cross_entropy_state = Cpu::cross_entropy_state;
  template <class T>
  static void cross_entropy_fold(Stream& s, Tensor<const T> logits, std::int64_t first,
                                 Tensor<const std::int32_t> targets, Tensor<double> state) {
    run(
        s, "cross_entropy_fold", [](auto&... a) { Cpu::cross_entropy_fold<T>(a...); }, logits, first, targets, state);
  }
  static void cross_entropy_sum(Stream& s, Tensor<const double> state, Tensor<double> loss) {
    run(
        s, "cross_entropy_sum", [](auto&... a) { Cpu::cross_entropy_sum(a...); }, state, loss);
  }
  template <class T>
  static void cross_entropy_gradient(Stream& s, Tensor<T> logits, std::int64_t first,
                                     Tensor<const std::int32_t> targets, float scale, Tensor<const double> state) {
    run(
        s, "cross_entropy_gradient", [](auto&... a) { Cpu::cross_entropy_gradient<T>(a...); }, logits, first, targets,
        scale, state);
  }
  template <class T>
  static void add(Stream& s, Tensor<const T> x, Tensor<T> y) {
    run(
        s, "add", [](auto&... a) { Cpu::add<T>(a...); }, x, y);
  }
  template <class X, class Y>
  static void copy(Stream& s, Tensor<const X> x, Tensor<Y> y) {
    run(
        s, "copy", [](auto&... a) { Cpu::copy<X, Y>(a...); }, x, y);
  }
  template <class T>
  static void fill(Stream& s, Tensor<T> y, float value) {
    run(
        s, "fill", [](auto&... a) { Cpu::fill<T>(a...); }, y, value);
  }
  static void sum_of_squares(Stream& s, Tensor<const float> x, Tensor<double> sum) {
    run(
        s, "sum_of_squares", [](auto&... a) { Cpu::sum_of_squares(a...); }, x, sum);
  }
  static void decide_step(Stream& s, const StepRules& rules, Tensor<const StepInputs> inputs, Tensor<const double> sums,
                          Tensor<StepDecision> step) {
    run(
        s, "decide_step", [](auto&... a) { Cpu::decide_step(a...); }, rules, inputs, sums, step);
  }
  template <class T>
  static void adamw(Stream&, const AdamWRules&, Tensor<const StepDecision>, Tensor<const T>, Tensor<float>,
                    Tensor<float>, Tensor<const float>, Tensor<bf16>) {
    device::refuse_gathered_weights<T>();
  }
  static void adamw(Stream& s, const AdamWRules& rules, Tensor<const StepDecision> step, Tensor<float> main,
                    Tensor<float> first, Tensor<float> second, Tensor<const float> gradient, Tensor<bf16> model) {
    run(
        s, "adamw", [](auto&... a) { Cpu::adamw(a...); }, rules, step, main, first, second, gradient, model);
  }

 private:
  /// Queues work(cpu stream, arguments...): tensors of const are read, others written.
  template <class Work, class... Arguments>
  static void run(Stream& stream, const char* operation, Work work, const Arguments&... arguments);

  template <class T>
  static void list(std::vector<Access>& accesses, const Tensor<T>& tensor) {
    if (tensor.data() == nullptr || tensor.numel() == 0) return;
    const std::int64_t last =
        tensor.contiguous() ? tensor.numel() : (tensor.rows() - 1) * tensor.row_stride() + tensor.columns();
    accesses.push_back({tensor.data(), last * static_cast<std::int64_t>(sizeof(T)), !std::is_const_v<T>});
  }
  template <class T>
  static void list(std::vector<Access>& accesses, const Operand<T>& operand) {
    list(accesses, operand.tensor);
  }
  template <class Value>
  static void list(std::vector<Access>&, const Value&) {}
};

class QueuedCpu::Stream : public Queue {
 public:
  Stream(Arena& arena, int threads) : Queue("stream"), arena_(&arena), threads_(threads) {}
  Arena& arena() const { return *arena_; }
  int threads() const { return threads_; }
  device::Counters counters;

 private:
  Arena* arena_;
  int threads_;
};

template <class Work, class... Arguments>
void QueuedCpu::run(Stream& stream, const char* operation, Work work, const Arguments&... arguments) {
  std::vector<Access> accesses;
  (list(accesses, arguments), ...);
  stream.submit(operation, accesses,
                [work, ... values = arguments](Cpu::Stream& cpu) mutable { work(cpu, values...); });
}

static_assert(device::check_device<QueuedCpu>());

}  // namespace fsdp::test

/// A CPU's scratch, though queues have their own, and memory that is not the host's.
template <>
struct fsdp::device::detail::Planning<fsdp::test::QueuedCpu> {
  using Meta = MetaOf<test::QueuedCpu>;
};
