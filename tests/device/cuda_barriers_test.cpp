// SPDX-License-Identifier: Apache-2.0
/// No barrier and no wait for a copy can be left out of a kernel: emulated, so that each can be.
#include <functional>
#include <set>

#include <support/cuda_emulation/controls.hpp>

#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;
namespace emulation = cuda::emulation;

/// Of more than two tiles of keys and of queries.
void run_attention(CudaRank& rank, std::int64_t head_dim) {
  const AttentionShape shape{
      .sequences = 1, .sequence_length = 136, .heads = 2, .kv_heads = 1, .head_dim = head_dim, .window = 100};
  const auto qkv = Matrix<bf16>::random(1, 136, 4 * head_dim), dout = Matrix<bf16>::random(2, 136, 2 * head_dim);
  Matrix<bf16> out(136, 2 * head_dim), dqkv(136, 4 * head_dim);
  Matrix<float> lse(2, 136);
  const OnDevice<bf16> device_qkv(rank, qkv), device_out(rank, out), device_dout(rank, dout), device_dqkv(rank, dqkv);
  const OnDevice<float> device_lse(rank, lse);
  const auto part = [&](const OnDevice<bf16>& all, std::int64_t first, std::int64_t count) {
    return all.view().slice_columns(first * head_dim, (first + count) * head_dim);
  };
  enqueue(rank.stream, Attention<bf16>{.shape = shape,
                                       .q = part(device_qkv, 0, 2),
                                       .k = part(device_qkv, 2, 1),
                                       .v = part(device_qkv, 3, 1),
                                       .out = device_out.view(),
                                       .lse = device_lse.view()});
  enqueue(rank.stream, AttentionBackward<bf16>{.shape = shape,
                                               .q = part(device_qkv, 0, 2),
                                               .k = part(device_qkv, 2, 1),
                                               .v = part(device_qkv, 3, 1),
                                               .out = device_out.input(),
                                               .lse = device_lse.input(),
                                               .dout = device_dout.input(),
                                               .dq = part(device_dqkv, 0, 2),
                                               .dk = part(device_dqkv, 2, 1),
                                               .dv = part(device_dqkv, 3, 1)});
}

void run_cached_attention(CudaRank& rank) {
  const NumbersOnDevice<std::int32_t> positions(rank, {39, 12});
  const auto q = Matrix<bf16>::random(1, 2, 4 * 64), kept = Matrix<bf16>::random(2, 2 * 40, 64);
  Matrix<bf16> out(2, 4 * 64);
  const OnDevice<bf16> device_q(rank, q), device_kept(rank, kept), device_out(rank, out);
  enqueue(rank.stream, CachedAttention<bf16>{.kv_heads = 1,
                                             .longest = 40,
                                             .positions = positions.view(),
                                             .q = device_q.view(),
                                             .keys = device_kept.view(),
                                             .values = device_kept.view(),
                                             .out = device_out.view()});
}

void run_norm(CudaRank& rank) {
  const auto x = Matrix<bf16>::random(1, 8, 520), w = Matrix<bf16>::random(2, 1, 520);
  Matrix<bf16> y(8, 520);
  Matrix<float> rstd(1, 8), dw(1, 520);
  const OnDevice<bf16> device_x(rank, x), device_w(rank, w), device_y(rank, y);
  const OnDevice<float> device_rstd(rank, rstd), device_dw(rank, dw);
  enqueue(rank.stream, RmsNorm<bf16>{.x = device_x.input(),
                                     .weight = device_w.vector_input(),
                                     .eps = 1,
                                     .y = device_y.view(),
                                     .rstd = device_rstd.vector()});
  enqueue(rank.stream, RmsNormBackward<bf16>{.x = device_x.input(),
                                             .weight = device_w.vector_input(),
                                             .rstd = device_rstd.vector_input(),
                                             .dy = device_y.input(),
                                             .dx = device_y.view(),
                                             .dx_write = Write::overwrite,
                                             .dw = device_dw.vector(),
                                             .dw_write = Write::overwrite});
}

void run_cross_entropy(CudaRank& rank) {
  auto logits = Matrix<bf16>::random(1, 6, 1000);
  const NumbersOnDevice<std::int32_t> targets(rank, {0, 999, 500, 3, 4, 5});
  const NumbersOnDevice<double> loss(rank, {0}), memory(rank, std::vector<double>(18));
  const Tensor<double> state(memory.view().data(), {6, 3});
  const OnDevice<bf16> device(rank, logits);
  const auto out = targets.view();
  enqueue(rank.stream, CrossEntropyLoss<bf16>{.logits = device.input(), .targets = out, .loss = loss.view()});
  enqueue(rank.stream, CrossEntropyFold<bf16>{.logits = device.input(), .first = 0, .targets = out, .state = state});
  enqueue(rank.stream, CrossEntropySum{.state = state, .loss = loss.view()});
  enqueue(rank.stream,
          CrossEntropyGradient<bf16>{.logits = device.view(), .first = 0, .targets = out, .scale = 1, .state = state});
}

void run_embedding_backward(CudaRank& rank) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t t = 0; t < 600; ++t) tokens.push_back(t * t % 5);
  const NumbersOnDevice<std::int32_t> ids(rank, tokens);
  const auto dy = Matrix<bf16>::random(1, 600, 40);
  Matrix<float> gradient(5, 40);
  const OnDevice<bf16> device_dy(rank, dy);
  const OnDevice<float> sums(rank, gradient);
  enqueue(rank.stream,
          EmbeddingBackward<bf16>{
              .tokens = ids.view(), .dy = device_dy.input(), .dtable = sums.view(), .write = Write::overwrite});
}

/// Of two chunks.
void run_exact_norm(CudaRank& rank) {
  const auto x = Matrix<float>::random(1, 1, sum_chunk + 1);
  const OnDevice<float> device(rank, x);
  const NumbersOnDevice<std::int64_t> largest(rank, {0}), sum(rank, {0, 0});
  enqueue(rank.stream, LargestMagnitude{.x = device.vector_input(), .largest = largest.view()});
  enqueue(rank.stream, FixedPointSquares{.x = device.vector_input(), .largest = largest.view(), .sum = sum.view()});
}

struct Case {
  const char* name;
  std::function<void(CudaRank&)> run;
  std::uint32_t blocks = 0;  ///< of a launch, so that each does several rows
};

TEST(CudaBarriers, EachOfEveryKernelIsMissedWhereItIsLeftOut) {
  std::vector<Case> cases = {{"cached attention", run_cached_attention, 2},
                             {"norm", run_norm, 2},
                             {"cross-entropy", run_cross_entropy, 2},
                             {"embedding", run_embedding_backward},
                             {"exact norm", run_exact_norm, 1}};
  for (const std::int64_t head_dim : {64, 80, 128})
    cases.push_back({"attention", [=](CudaRank& rank) { run_attention(rank, head_dim); }});
  const auto run = [](const Case& one) {
    CudaRank rank;
    emulation::limit_blocks(one.blocks);
    one.run(rank);
  };
  std::set<std::string> all, missed;
  for (const Case& one : cases) {
    emulation::take_sites();
    EXPECT_NO_THROW(run(one)) << one.name;
    for (const std::string& site : emulation::take_sites()) {
      all.insert(site);
      emulation::leave_out(site);
      try {
        run(one);
      } catch (const Error&) {
        missed.insert(site);
      }
      emulation::leave_out({});
    }
  }
  emulation::limit_blocks(0);
  EXPECT_GT(all.size(), 10u);
  for (const std::string& site : all) EXPECT_TRUE(missed.contains(site)) << site << " can be left out";
}

}  // namespace
}  // namespace fsdp::device
