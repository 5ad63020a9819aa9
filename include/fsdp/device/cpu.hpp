// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU: memory from the process's address space, operations that are done when they return.
///
/// matmul is oneDNN's; all else is ours, vectorised for the instruction set found at start and threaded with OpenMP.
/// Results depend on the number of threads and on nothing else. Every output is fully written.
/// Operations are instantiated for float and bf16 in src/device/cpu/; reductions over tokens are in float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/device/queue.hpp>

namespace fsdp::device {

struct Cpu {
  static constexpr std::string_view name = "cpu";
  static constexpr bool counts_only = false;   ///< whether tensors have no storage
  static constexpr bool asynchronous = false;  ///< whether operations are queued, and done later
  static constexpr bool overlaps = false;      ///< whether collectives run beside computation
  static constexpr bool host_memory = true;    ///< whether the host reads and writes tensors where they lie
  using Arena = device::Arena<Cpu>;
  using Event = ImmediateEvent;
  using Queue = ImmediateQueue;
  class Stream;

  /// Zeroed, aligned to `alignment`. Throws MemoryError.
  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);
  /// Marks released memory: unreadable under AddressSanitizer, NaN in debug builds, nothing otherwise.
  static void poison(std::byte* data, std::int64_t bytes);
  static void unpoison(std::byte* data, std::int64_t bytes);
  static std::byte* unbacked(std::int64_t) { return nullptr; }
  /// Copies bytes from or to the host.
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  /// c = a b, or c += a b: [M, K] x [K, N] -> [M, N], summed in float. (A, C) is (float, float), (bf16, bf16), (bf16,
  /// float).
  template <class A, class C>
  static void matmul(Stream&, Operand<A> a, Operand<A> b, Tensor<C> c, Write write = Write::overwrite);
  /// Scratch bytes that this matmul takes from the arena: what Meta asks.
  static std::int64_t matmul_scratch(Stream&, const MatmulRecord& problem, std::int64_t lda, std::int64_t ldb,
                                     std::int64_t ldc);

  /// y = x / sqrt(mean(x^2) + eps) * w, per row; keeps 1 / sqrt(...) in rstd for backward.
  template <class T>
  static void rms_norm(Stream&, Tensor<const T> x, Tensor<const T> w, float eps, Tensor<T> y, Tensor<float> rstd);
  /// dx and dw of rms_norm, each overwritten or added to; dx may be dy itself.
  template <class T>
  static void rms_norm_backward(Stream&, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd,
                                Tensor<const T> dy, Tensor<T> dx, Write dx_write, Tensor<float> dw, Write dw_write);

  /// table [S, head_dim]: cos of position * theta^(-2i/d) for i < d/2, then sin.
  static void rotary_table(Stream&, float theta, Tensor<float> table);
  /// Rotates all heads of x [T, heads * head_dim] in place, by halves (rotate_half); the i-th row of a document takes
  /// position i of table [S, d]. Without documents each S rows are one.
  template <class T>
  static void rope(Stream&, Tensor<T> x, Tensor<const float> table, Rotation rotation,
                   CumulativeLengths documents = {});

  /// Causal grouped-query attention, scaled by 1 / sqrt(head_dim), blockwise with an online softmax: memory linear in
  /// the sequence (Dao 2023, FlashAttention-2). lse [sequences * heads, S] keeps log sum exp for backward. Blocks of
  /// keys that no query of a block sees, in the future or in other documents, are skipped; scratch does not depend on
  /// documents.
  template <class T>
  static void attention(Stream&, const AttentionShape&, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v,
                        Tensor<T> out, Tensor<float> lse);
  template <class T>
  static void attention_backward(Stream&, const AttentionShape&, Tensor<const T> q, Tensor<const T> k,
                                 Tensor<const T> v, Tensor<const T> out, Tensor<const float> lse, Tensor<const T> dout,
                                 Tensor<T> dq, Tensor<T> dk, Tensor<T> dv);
  /// Scratch bytes of the two above.
  static std::int64_t attention_scratch(Stream&, const AttentionShape&, DType dtype, bool backward);

  /// h = silu(gate) * up; h may be gate.
  template <class T>
  static void swiglu(Stream&, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h);
  /// In place: gate becomes its gradient, up becomes its gradient, dh becomes h.
  template <class T>
  static void swiglu_backward(Stream&, Tensor<T> gate, Tensor<T> up, Tensor<T> dh);

  /// out[t] = table[tokens[t]].
  template <class T>
  static void embedding(Stream&, Tensor<const T> table, Tensor<const std::int32_t> tokens, Tensor<T> out);
  /// dtable[tokens[t]] += dy[t] in the order of t; `overwrite` clears the table first.
  template <class T>
  static void embedding_backward(Stream&, Tensor<const std::int32_t> tokens, Tensor<const T> dy, Tensor<float> dtable,
                                 Write write);

  /// Adds to loss[0] the negative log likelihood of every row, and replaces the logits [t, V] by
  /// scale * (softmax - one_hot). Throws InputError where a target is not in [0, V).
  template <class T>
  static void cross_entropy(Stream&, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale,
                            Tensor<double> loss);
  /// The same loss without a gradient; the logits stay.
  template <class T>
  static void cross_entropy_loss(Stream&, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                                 Tensor<double> loss);

  // The same in blocks of columns, where [t, V] is too large to exist: `fold` every block from column 0 on, then `sum`,
  // then `gradient` of blocks in any order. Targets count from column 0 and are in the vocabulary.
  static constexpr std::int64_t cross_entropy_state = 3;  ///< doubles a row: maximum, sum of exp, the target's logit
  /// Columns [first, first + c) of the logits go into `state` [t, 3].
  template <class T>
  static void cross_entropy_fold(Stream&, Tensor<const T> logits, std::int64_t first,
                                 Tensor<const std::int32_t> targets, Tensor<double> state);
  static void cross_entropy_sum(Stream&, Tensor<const double> state, Tensor<double> loss);
  template <class T>
  static void cross_entropy_gradient(Stream&, Tensor<T> logits, std::int64_t first, Tensor<const std::int32_t> targets,
                                     float scale, Tensor<const double> state);

  /// y += x.
  template <class T>
  static void add(Stream&, Tensor<const T> x, Tensor<T> y);
  /// y = x, rounding where Y is narrower.
  template <class X, class Y>
  static void copy(Stream&, Tensor<const X> x, Tensor<Y> y);
  template <class T>
  static void fill(Stream&, Tensor<T> y, float value);

  /// Adds the sum of squares to sum[0], in double, in an order that does not depend on the number of threads.
  static void sum_of_squares(Stream&, Tensor<const float> x, Tensor<double> sum);
  /// Clipping, loss scale and bias correction of a step, and whether it is taken, from `sums` [ranks, 2]: every rank's
  /// loss and sum of squares of gradients. `step` carries on from the step before.
  static void decide_step(Stream&, const StepRules&, Tensor<const StepInputs>, Tensor<const double> sums,
                          Tensor<StepDecision> step);

  template <class T>
  static void adamw(Stream&, const AdamWRules&, Tensor<const StepDecision>, Tensor<const T>, Tensor<float>,
                    Tensor<float>, Tensor<const float>, Tensor<bf16>) {
    refuse_gathered_weights<T>();
  }
  /// One pass over contiguous shards: moments and main weights are updated, model weights (bf16) written; an empty
  /// `model` says that the main weights are the model weights. A step that is skipped writes model weights alone.
  static void adamw(Stream&, const AdamWRules&, Tensor<const StepDecision> step, Tensor<float> main,
                    Tensor<float> first_moment, Tensor<float> second_moment, Tensor<const float> gradient,
                    Tensor<bf16> model);
};

/// A rank's queue of work: its threads, its scratch, its counters. Not shared between ranks. Operations on it run at
/// once.
class Cpu::Stream : public Queue {
 public:
  /// Takes matmul scratch from `arena`. `threads` >= 1 becomes the OpenMP team size of the calling thread.
  Stream(Arena& arena, int threads);
  Stream(Stream&&) noexcept;
  ~Stream();

  Arena& arena() const { return *arena_; }
  int threads() const { return threads_; }
  Counters counters;

  struct Cache;  ///< oneDNN primitives by problem
  Cache& cache() const { return *cache_; }

 private:
  Arena* arena_;
  int threads_;
  std::unique_ptr<Cache> cache_;
};

/// Cores that this process may use, honouring its affinity mask.
int available_cores();

}  // namespace fsdp::device
