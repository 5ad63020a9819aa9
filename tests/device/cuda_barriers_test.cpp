// SPDX-License-Identifier: Apache-2.0
/// Every barrier and every wait for a copy in the kernels is necessary: the emulation omits each in turn and detects
/// it.
#include <functional>
#include <set>

#include <support/cuda_emulation/controls.hpp>

#include "attention_reference.hpp"
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;
namespace emulation = cuda::emulation;

/// Attention over more than two tiles of keys and of queries.
void run_attention(CudaRank& rank, std::int64_t head_dim) {
  Buffers<bf16, CudaRank> buffers(
      rank, {.sequences = 1, .sequence_length = 136, .heads = 2, .kv_heads = 1, .head_dim = head_dim, .window = 100},
      0);
  buffers.run(rank);
}

void run_cached_attention(CudaRank& rank) {
  const NumbersOnDevice<std::int32_t> positions(rank, {39, 12});
  const OnDevice<bf16> q(rank, Matrix<bf16>::random(1, 2, 4 * 64)), kept(rank, Matrix<bf16>::random(2, 2 * 40, 64));
  const OnDevice<bf16> out(rank, {2, 4 * 64});
  enqueue(rank.stream,
          CachedAttention<bf16>{
              .kv_heads = 1, .longest = 40, .positions = positions, .q = q, .keys = kept, .values = kept, .out = out});
}

void run_norm(CudaRank& rank) {
  const OnDevice<bf16> x(rank, Matrix<bf16>::random(1, 8, 520)), w(rank, Matrix<bf16>::random_numbers(2, 520));
  const OnDevice<bf16> y(rank, {8, 520});
  const OnDevice<float> rstd(rank, Matrix<float>::numbers(8)), dw(rank, Matrix<float>::numbers(520));
  enqueue(rank.stream, RmsNorm<bf16>{.x = x, .weight = w, .eps = 1, .y = y, .rstd = rstd});
  enqueue(rank.stream, RmsNormBackward<bf16>{.x = x, .weight = w, .rstd = rstd, .dy = y, .dx = y, .dw = dw});
}

void run_cross_entropy(CudaRank& rank) {
  const NumbersOnDevice<std::int32_t> targets(rank, {0, 999, 500, 3, 4, 5});
  const NumbersOnDevice<double> loss(rank, {0}), memory(rank, std::vector<double>(18));
  const Tensor<double> state = memory.shaped({6, 3});
  const OnDevice<bf16> logits(rank, Matrix<bf16>::random(1, 6, 1000));
  enqueue(rank.stream, CrossEntropyLoss<bf16>{.logits = logits, .targets = targets, .loss = loss});
  enqueue(rank.stream, CrossEntropyFold<bf16>{.logits = logits, .first = 0, .targets = targets, .state = state});
  enqueue(rank.stream, CrossEntropySum{.state = state, .loss = loss});
  enqueue(rank.stream,
          CrossEntropyGradient<bf16>{.logits = logits, .first = 0, .targets = targets, .scale = 1, .state = state});
}

void run_embedding_backward(CudaRank& rank) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t t = 0; t < 600; ++t) tokens.push_back(t * t % 5);
  const NumbersOnDevice<std::int32_t> ids(rank, tokens);
  const OnDevice<bf16> dy(rank, Matrix<bf16>::random(1, 600, 40));
  const OnDevice<float> sums(rank, {5, 40});
  enqueue(rank.stream, EmbeddingBackward<bf16>{.tokens = ids, .dy = dy, .dtable = sums, .write = Write::overwrite});
}

/// An exact norm over two chunks.
void run_exact_norm(CudaRank& rank) {
  const OnDevice<float> x(rank, Matrix<float>::random_numbers(1, sum_chunk + 1));
  const NumbersOnDevice<std::int64_t> largest(rank, {0}), sum(rank, {0, 0});
  enqueue(rank.stream, LargestMagnitude{.x = x, .largest = largest});
  enqueue(rank.stream, FixedPointSquares{.x = x, .largest = largest, .sum = sum});
}

struct Kernel {
  const char* name;
  std::function<void(CudaRank&)> run;
  std::uint32_t blocks = 0;  ///< limit on the blocks of a launch, so that each computes several rows; 0 for no limit
};

TEST(CudaBarriers, OmittingAnyBarrierOfAKernelIsDetected) {
  std::vector<Kernel> cases = {{"cached attention", run_cached_attention, 2},
                               {"norm", run_norm, 2},
                               {"cross-entropy", run_cross_entropy, 2},
                               {"embedding", run_embedding_backward},
                               {"exact norm", run_exact_norm, 1}};
  for (const std::int64_t head_dim : {64, 80, 128})
    cases.push_back({"attention", [=](CudaRank& rank) { run_attention(rank, head_dim); }});
  const auto run = [](const Kernel& one) {
    CudaRank rank;
    emulation::limit_blocks(one.blocks);
    one.run(rank);
  };
  std::set<std::string> all, missed;
  for (const Kernel& one : cases) {
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
