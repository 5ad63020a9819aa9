// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a device is: memory, a stream, and the operations.
///
/// A device is a struct of static functions. It has
/// - `name`, `counts_only` (whether its tensors have no storage), and memory: `allocate(bytes)`, `deallocate`,
/// `poison`, `unpoison`, `unbacked(offset)`, for `Arena` and `Block`; `move` copies bytes, from and to the host and
/// between ranks of one process too;
/// - `asynchronous`, `Queue` and `Event`, as device/queue.hpp says; `overlaps`, whether collectives run beside
/// computation and so need a second gradient slot; `host_memory`, whether the host uses tensors where they lie
/// (elsewhere device/on_host.hpp);
/// - `Stream`, the queue that computes: `arena()`, `threads()`, `counters`;
/// - the operations that device/cpu.hpp describes, each for float and bf16;
/// - where operations are queued, what communicators queue: `round` turns floats into a wire type; `sum_in_order` is
/// sum = or += parts[0] + parts[1] + ..., each stored as one type and rounded to another, in float, in that order
/// (`sum` may be one of the parts);
/// - where what queues are asked for can be kept, to be asked for again as one: `Graph` and `capture` (see Captures).
/// To add one: a header here, its operations in src/device/NAME/, its shapes and costs
/// from src/device/costs.hpp, and `static_assert(check_device<Name>())` in tests/device/.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>

namespace fsdp::device {
namespace detail {

template <class D>
concept Named = requires {
  { D::name } -> std::convertible_to<std::string_view>;
  requires D::counts_only || !D::counts_only;
};

template <class D>
concept Memory = requires(std::byte* data, std::int64_t bytes, typename D::Queue& queue) {
  { D::allocate(bytes) } -> std::same_as<std::byte*>;
  { D::unbacked(bytes) } -> std::same_as<std::byte*>;
  D::deallocate(data, bytes);
  D::poison(data, bytes);
  D::unpoison(data, bytes);
  D::move(queue, data, data, bytes);
};

template <class D>
concept HasArena = std::same_as<typename D::Arena, Arena<D>>;

template <class D>
concept HasQueue = requires(typename D::Queue& queue, const typename D::Event& event) {
  typename std::bool_constant<D::asynchronous>;
  typename std::bool_constant<D::overlaps>;
  typename std::bool_constant<D::host_memory>;
  { queue.record() } -> std::same_as<typename D::Event>;
  queue.wait(event);
  queue.synchronize();
  { event.happened() } -> std::same_as<bool>;
}
&&std::copyable<typename D::Event>&& std::default_initializable<typename D::Event>&&
    std::constructible_from<typename D::Queue, std::string_view>;

template <class D>
concept HasStream = requires(typename D::Stream& stream) {
  { stream.arena() } -> std::same_as<Arena<D>&>;
  { stream.threads() } -> std::convertible_to<int>;
  { stream.counters } -> std::same_as<Counters&>;
}
&&std::move_constructible<typename D::Stream>&& std::derived_from<typename D::Stream, typename D::Queue>;

template <class D>
concept MovesForPeers = !D::asynchronous || requires(typename D::Queue & queue, const std::byte* from, std::byte* to,
                                                     std::span<const std::byte* const> parts, float* sum) {
  D::round(queue, sum, DType::bf16, std::int64_t{}, to);
  D::sum_in_order(queue, parts, DType::f32, DType::f32, std::int64_t{}, Write::overwrite, sum);
};

template <class D, class A, class C>
concept Multiplies = requires(typename D::Stream& stream, Operand<A> a, Tensor<C> c) {
  D::matmul(stream, a, a, c, Write::accumulate);
};

template <class D, class T>
concept Norms = requires(typename D::Stream& stream, Tensor<const T> x, Tensor<T> y, Tensor<float> sums) {
  D::template rms_norm<T>(stream, x, x, 1e-5f, y, sums);
  D::template rms_norm_backward<T>(stream, x, x, sums, x, y, Write::overwrite, sums, Write::overwrite);
};

template <class D, class T>
concept Rotates = requires(typename D::Stream& stream, Tensor<T> x, Tensor<float> table) {
  D::rotary_table(stream, 1e4f, table);
  D::template rope<T>(stream, x, table, Rotation::forward);
};

template <class D, class T>
concept Attends = requires(typename D::Stream& stream, const AttentionShape& shape, Tensor<const T> x, Tensor<T> y,
                           Tensor<float> lse) {
  D::template attention<T>(stream, shape, x, x, x, y, lse);
  D::template attention_backward<T>(stream, shape, x, x, x, x, lse, x, y, y, y);
};

template <class D, class T>
concept Gates = requires(typename D::Stream& stream, Tensor<const T> x, Tensor<T> y) {
  D::template swiglu<T>(stream, x, x, y);
  D::template swiglu_backward<T>(stream, y, y, y);
};

template <class D, class T>
concept Embeds = requires(typename D::Stream& stream, Tensor<const T> x, Tensor<T> y, Tensor<float> table,
                          Tensor<const std::int32_t> tokens) {
  D::template embedding<T>(stream, x, tokens, y);
  D::template embedding_backward<T>(stream, tokens, x, table, Write::overwrite);
};

template <class D, class T>
concept Scores = requires(typename D::Stream& stream, Tensor<const T> x, Tensor<T> y,
                          Tensor<const std::int32_t> targets, Tensor<double> loss) {
  D::template cross_entropy<T>(stream, y, targets, 1.0f, loss);
  D::template cross_entropy_loss<T>(stream, x, targets, loss);
  D::template cross_entropy_fold<T>(stream, x, D::cross_entropy_state, targets, loss);
  D::template cross_entropy_gradient<T>(stream, y, 0, targets, 1.0f, loss);
  D::cross_entropy_sum(stream, loss, loss);
};

template <class D, class T>
concept Moves = requires(typename D::Stream& stream, Tensor<const T> x, Tensor<T> y, Tensor<float> wide,
                         Tensor<bf16> narrow) {
  D::template add<T>(stream, x, y);
  D::template copy<T, float>(stream, x, wide);
  D::template copy<T, bf16>(stream, x, narrow);
  D::template fill<T>(stream, y, 0.0f);
};

template <class D>
concept Optimizes = requires(typename D::Stream& stream, const AdamWRules& rules, const StepRules& run, Tensor<float> x,
                             Tensor<bf16> model, Tensor<double> sum, Tensor<StepInputs> inputs,
                             Tensor<StepDecision> step) {
  D::sum_of_squares(stream, x, sum);
  D::decide_step(stream, run, inputs, sum, step);
  D::adamw(stream, rules, step, x, x, x, x, model);
};

template <class D, class T>
concept Operates = Multiplies<D, T, T> && Multiplies<D, T, float> && Norms<D, T> && Rotates<D, T> && Attends<D, T> &&
    Gates<D, T> && Embeds<D, T> && Scores<D, T> && Moves<D, T>;

}  // namespace detail

/// A device: see the head of this file.
template <class D>
concept Device =
    detail::Named<D> && detail::Memory<D> && detail::HasArena<D> && detail::HasQueue<D> && detail::HasStream<D> &&
    detail::MovesForPeers<D> && detail::Operates<D, float> && detail::Operates<D, bf16> && detail::Optimizes<D>;

/// A device whose queues' work can be kept: `capture(queue, ask)` calls `ask`, and keeps what it asks of `queue`, and
/// of queues that wait for its events, instead of doing it; `launch(queue)` of the graph that it returns does all of
/// that after what `queue` was asked for before, as often as wanted. Until `ask` returns, queues wait for events that
/// were recorded meanwhile alone, the host asks for no event, and at the end `queue` has waited for all other queues.
template <class D>
concept Captures = requires(typename D::Queue& queue, const typename D::Graph& graph, void (*ask)()) {
  { D::capture(queue, ask) } -> std::same_as<typename D::Graph>;
  graph.launch(queue);
}
&&std::movable<typename D::Graph>&& std::default_initializable<typename D::Graph>;

/// Whether a device computes in T; one that can do more than float and bf16 specialises it.
template <class D, class T>
inline constexpr bool computes_in = std::is_same_v<T, float> || std::is_same_v<T, bf16>;

/// Says in words what a type lacks to be a device. Call it where the type is first used.
template <class D>
consteval bool check_device() {
  using namespace detail;
  static_assert(
      Named<D>,
      "fsdp: a device lacks its name or kind; give it static constexpr std::string_view name and bool counts_only");
  static_assert(Memory<D>,
                "fsdp: a device lacks memory; it needs static allocate(bytes), deallocate(data, bytes), "
                "poison, unpoison, unbacked(offset) and move, as device/cpu.hpp has them");
  static_assert(HasArena<D>, "fsdp: a device lacks its arena; write using Arena = device::Arena<ThisDevice>");
  static_assert(HasQueue<D>,
                "fsdp: a device says whether its operations are queued, and how they are ordered; give it static "
                "constexpr bool asynchronous, overlaps and host_memory, a copyable Event, and a Queue(name) with "
                "record(), wait(event) and "
                "synchronize(), as device/queue.hpp has them");
  static_assert(HasStream<D>, "fsdp: a device lacks a movable Stream, a Queue with arena(), threads() and counters");
  static_assert(MovesForPeers<D>,
                "fsdp: an asynchronous device lacks what communicators queue on it: "
                "round(queue, from, wire, count, to) and sum_in_order(queue, parts, stored, wire, count, write, sum)");
  static_assert(Multiplies<D, float, float> && Multiplies<D, bf16, bf16> && Multiplies<D, bf16, float>,
                "fsdp: a device lacks matmul for (float, float), (bf16, bf16) or (bf16, float); see device/cpu.hpp");
  static_assert(Norms<D, float> && Norms<D, bf16>, "fsdp: a device lacks rms_norm or rms_norm_backward");
  static_assert(Rotates<D, float> && Rotates<D, bf16>, "fsdp: a device lacks rotary_table or rope");
  static_assert(Attends<D, float> && Attends<D, bf16>, "fsdp: a device lacks attention or attention_backward");
  static_assert(Gates<D, float> && Gates<D, bf16>, "fsdp: a device lacks swiglu or swiglu_backward");
  static_assert(Embeds<D, float> && Embeds<D, bf16>, "fsdp: a device lacks embedding or embedding_backward");
  static_assert(Scores<D, float> && Scores<D, bf16>,
                "fsdp: a device lacks cross_entropy, cross_entropy_loss, or _fold, _gradient and _sum");
  static_assert(Moves<D, float> && Moves<D, bf16>, "fsdp: a device lacks add, copy to float and bf16, or fill");
  static_assert(Optimizes<D>, "fsdp: a device lacks sum_of_squares, decide_step or adamw");
  return Device<D>;
}

}  // namespace fsdp::device
