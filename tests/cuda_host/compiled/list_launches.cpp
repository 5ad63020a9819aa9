// SPDX-License-Identifier: Apache-2.0
/// Prints the launches of operations at typical sizes, one JSON object per line, for bench/gpu/gate.py. The kernels are
/// compiled by nvcc and do not run.
#include <cstdio>
#include <string>

#include <tessera/fsdp/device/compute/cuda.hpp>

#include "src/fsdp/device/cuda/scratch.hpp"

#include "../doubles/compiled_kernels.hpp"
#include "../doubles/machine.hpp"

namespace fsdp::device {

// A stream without cuBLASLt and cuDNN, which no operation here uses.
struct Cuda::Stream::Cache {};
Cuda::Queue::Queue(std::string_view name, Priority) : name_(name) {}
Cuda::Stream::Stream(Arena& arena, int, bool plain) : Queue("list"), arena_(&arena), plain_(plain) {}
Cuda::Stream::~Stream() = default;
void Cuda::move(Queue&, const std::byte*, std::byte*, std::int64_t) {}
bool cuda::attention_through_cudnn(const Cuda::Stream&, const AttentionCall&, Tensor<std::uint8_t>) { return false; }

namespace {

using namespace testing::cuda_host;

class List {
 public:
  List() : stream_(arena_) {}

  /// `name` is the operation's name, followed by its sizes if it is listed at several sizes.
  template <class Op>
  void add(const std::string& name, const Op& op) {
    const Cost cost = op.cost();
    if constexpr (detail::RunsInScratch<Cuda::Stream, Op>)
      run(stream_, op, scratch_of(scratch(stream_, op)));
    else
      run(stream_, op);
    std::printf("{\"operation\": \"%s\", \"flops\": %lld, \"bytes\": %lld, \"launches\": [", name.c_str(),
                static_cast<long long>(cost.attention_flops), static_cast<long long>(cost.bytes));
    const char* comma = "";
    for (const Launch& launch : take_launches()) {
      std::printf("%s{\"kernel\": \"%s\", \"blocks\": %u, \"threads\": %u, \"dynamic_shared\": %zu}", comma,
                  launch.kernel->name.c_str(), launch.blocks, launch.threads, launch.dynamic_shared);
      comma = ", ";
    }
    std::puts("]}");
  }

 private:
  Cuda::Arena arena_ = Cuda::Arena::unbounded();
  Cuda::Stream stream_;
};

template <class T>
void add_attention(List& list, const std::string& type, std::int64_t head_dim) {
  constexpr std::int64_t sequences = 2, length = 4096, heads = 16, kv_heads = 4, tokens = sequences * length;
  const AttentionShape shape{
      .sequences = sequences, .sequence_length = length, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
  const auto q = tensor<T>({tokens, heads * head_dim}), kv = tensor<T>({tokens, kv_heads * head_dim});
  const auto lse = tensor<float>({sequences * heads, length});
  const std::string name = type + ", head size " + std::to_string(head_dim);
  list.add("attention " + name, Attention<T>{.shape = shape, .q = q, .k = kv, .v = kv, .out = q, .lse = lse});
  list.add("attention_backward " + name,
           AttentionBackward<T>{
               .shape = shape, .q = q, .k = kv, .v = kv, .out = q, .lse = lse, .dout = q, .dq = q, .dk = kv, .dv = kv});
}

/// Adds norms over 8192 tokens.
template <class T>
void add_norm(List& list, const std::string& type, std::int64_t hidden) {
  const auto x = tensor<T>({8192, hidden}), w = tensor<T>({hidden});
  const auto rstd = tensor<float>({8192}), dw = tensor<float>({hidden});
  const std::string sizes = " " + type + ", " + std::to_string(hidden) + " columns";
  list.add("rms_norm" + sizes, RmsNorm<T>{.x = x, .weight = w, .y = x, .rstd = rstd});
  list.add("rms_norm_backward" + sizes,
           RmsNormBackward<T>{.x = x, .weight = w, .rstd = rstd, .dy = x, .dx = x, .dw = dw});
}

/// Adds the operations of a bf16 layer with 8192 tokens and hidden size 4096, and norms at GPT-3's hidden size too.
void add_layer(List& list) {
  constexpr std::int64_t tokens = 8192, intermediate = 12288;
  for (const std::int64_t hidden : {4096, 12288}) {
    add_norm<bf16>(list, "bf16", hidden);
    add_norm<f16>(list, "f16", hidden);
    add_norm<float>(list, "f32", hidden);
  }
  const auto x = tensor<bf16>({tokens, 4096}), wide = tensor<bf16>({tokens, intermediate});
  list.add("swiglu", SwiGlu<bf16>{.gate = wide, .up = wide, .h = wide});
  list.add("swiglu_backward", SwiGluBackward<bf16>{.gate = wide, .up = wide, .dh = wide});
  list.add("rope", Rope<bf16>{.x = x, .table = tensor<float>({4096, 128})});
  list.add("add", Add<bf16>{.x = x, .y = x});
  list.add("add_bias", AddBias<bf16>{.bias = tensor<bf16>({4096}), .y = x});
  list.add("bias_backward", BiasBackward<bf16>{.dy = x, .dbias = tensor<float>({4096})});
}

void add_ends(List& list) {
  const auto tokens = tensor<std::int32_t>({4096});
  const auto logits = tensor<bf16>({4096, 32000}), table = tensor<bf16>({32000, 4096}), x = tensor<bf16>({4096, 4096});
  list.add("embedding", Embedding<bf16>{.table = table, .tokens = tokens, .out = x});
  list.add("embedding_backward",
           EmbeddingBackward<bf16>{.tokens = tokens, .dy = x, .dtable = tensor<float>({32000, 4096})});
  list.add("cross_entropy", CrossEntropy<bf16>{.logits = logits, .targets = tokens, .loss = tensor<double>({1})});
  list.add("cached_attention, head size 128", CachedAttention<bf16>{.kv_heads = 8,
                                                                    .longest = 4096,
                                                                    .positions = tensor<std::int32_t>({16}),
                                                                    .q = tensor<bf16>({16, 32 * 128}),
                                                                    .keys = tensor<bf16>({16 * 8 * 4096, 128}),
                                                                    .values = tensor<bf16>({16 * 8 * 4096, 128}),
                                                                    .out = tensor<bf16>({16, 32 * 128})});
  const auto main = tensor<float>({100'000'000});
  list.add("adamw", AdamWStep<bf16>{.step = tensor<StepDecision>({1}),
                                    .main = main,
                                    .first_moment = main,
                                    .second_moment = main,
                                    .gradient = main,
                                    .model = tensor<bf16>({100'000'000})});
  list.add("sum_of_squares", SumOfSquares{.x = main, .sum = tensor<double>({1})});
  list.add("largest_magnitude", LargestMagnitude{.x = main, .largest = tensor<std::int64_t>({1})});
  list.add("fixed_point_squares",
           FixedPointSquares{.x = main, .largest = tensor<std::int64_t>({8}), .sum = tensor<std::int64_t>({2})});
}

void add_all() {
  List list;
  for (std::int64_t head_dim = 16; head_dim <= 256; head_dim += 16) {
    add_attention<bf16>(list, "bf16", head_dim);
    add_attention<f16>(list, "f16", head_dim);
  }
  add_attention<float>(list, "f32", 128);
  add_layer(list);
  add_ends(list);
}

}  // namespace
}  // namespace fsdp::device

int main() {
  using namespace fsdp::testing::cuda_host;
  Machine::instance().reset(1);
  int status = 0;
  try {
    fsdp::device::add_all();
  } catch (const fsdp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  for (const std::string& problem : Machine::instance().take_problems()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    status = 1;
  }
  return status;
}
