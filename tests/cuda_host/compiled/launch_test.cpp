// SPDX-License-Identifier: Apache-2.0
/// Launches of kernels that nvcc compiled, compared with the resource usage recorded in their cubins.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "src/fsdp/device/cuda/kernels.hpp"
#include "src/fsdp/device/cuda/launch.hpp"
#include "src/fsdp/device/cuda/scratch.hpp"

#include "../doubles/compiled_kernels.hpp"
#include "../doubles/machine.hpp"

namespace fsdp::testing::cuda_host {
namespace {

class CudaHost_launch : public ::testing::Test {
 protected:
  void SetUp() override { Machine::instance().reset(1); }
  void TearDown() override {
    for (const std::string& problem : Machine::instance().take_problems()) ADD_FAILURE() << problem;
  }
};

template <class T, class W = T>
void launch_norm_backward(std::int64_t columns, std::int64_t rows) {
  const auto x = tensor<T>({rows, columns});
  const auto w = tensor<W>({columns});
  const auto rstd = tensor<float>({rows}), dw = tensor<float>({columns});
  device::cuda::compute({},
                        device::RmsNormBackward<T, W>{.x = x, .weight = w, .rstd = rstd, .dy = x, .dx = x, .dw = dw},
                        scratch_of(device::cuda::row_sums_scratch(rows, columns)));
}

template <class T>
void launch_attention(std::int64_t head_dim) {
  const device::AttentionShape shape{
      .sequences = 2, .sequence_length = 300, .heads = 4, .kv_heads = 2, .head_dim = head_dim};
  const auto q = tensor<T>(shape.queries()), k = tensor<T>(shape.keys());
  const auto numbers = tensor<float>({shape.sequences * shape.heads, shape.sequence_length});
  const device::Scratch memory = scratch_of(device::cuda::attention_scratch(shape, dtype_of<T>(), true));
  device::cuda::compute({}, device::Attention<T>{.shape = shape, .q = q, .k = k, .v = k, .out = q, .lse = numbers},
                        memory);
  device::cuda::compute(
      {},
      device::AttentionBackward<T>{
          .shape = shape, .q = q, .k = k, .v = k, .out = q, .lse = numbers, .dout = q, .dq = q, .dk = k, .dv = k},
      memory);
}

/// The number of blocks of a launch that can be resident on a multiprocessor at the same time.
std::size_t blocks_at_a_time(const Launch& launch) {
  const std::size_t registers = (launch.kernel->registers * std::size_t{32} + 255) / 256 * 256 * launch.threads / 32;
  const std::size_t shared = launch.kernel->static_shared + launch.dynamic_shared + Limits::shared_reserved;
  return std::min(Limits::registers / registers, (Limits::shared + Limits::shared_reserved) / shared);
}

TEST_F(CudaHost_launch, KnowsTheRegistersOfEveryKernel) {
  ASSERT_FALSE(compiled_kernels().empty());
  for (const CompiledKernel& kernel : compiled_kernels()) EXPECT_GT(kernel.registers, 0u) << kernel.name;
}

TEST_F(CudaHost_launch, RequestsMoreSharedMemoryWhereverAKernelNeedsIt) {
  for (const CompiledKernel& kernel : compiled_kernels())
    EXPECT_LE(kernel.static_shared + device::cuda::shared_without_asking, Limits::shared_unasked) << kernel.name;
}

TEST_F(CudaHost_launch, OfNormBackwardSucceedsForEveryNumberOfColumns) {
  for (const std::int64_t columns :
       {1, 64, 8064, 8192, 12224, 12256, 12257, 12272, 12288, 12289, 16384, 24576, 24577}) {
    SCOPED_TRACE(columns);
    EXPECT_NO_THROW(launch_norm_backward<bf16>(columns, 100));
    EXPECT_NO_THROW(launch_norm_backward<f16>(columns, 100));
    EXPECT_NO_THROW((launch_norm_backward<bf16, float>(columns, 100)));
    EXPECT_NO_THROW(launch_norm_backward<float>(columns, 100));
    for (const Launch& launch : take_launches()) {
      const bool folds = launch.kernel->name.find("fold_parts") != std::string::npos;  // its blocks share the columns
      EXPECT_TRUE(folds || launch.blocks <= 256) << launch.blocks << " blocks, each of which wants a part in scratch";
    }
  }
}

TEST_F(CudaHost_launch, OfAttentionSucceedsForEveryHeadSizeAndFillsASm) {
  for (std::int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    SCOPED_TRACE(head_dim);
    head_dim % 16 == 0 ? launch_attention<bf16>(head_dim) : launch_attention<f16>(head_dim);
    // forward, row products of dout and out, one or two passes over keys, one pass over queries
    const std::vector<Launch> launches = take_launches();
    EXPECT_EQ(launches.size(), head_dim <= 128 ? 4u : 5u);
    for (const Launch& launch : launches) {
      EXPECT_GE(blocks_at_a_time(launch) * launch.threads, 256u) << launch.kernel->name;      // two warps per scheduler
      EXPECT_EQ(launch.dynamic_shared == 0, &launch == &launches[1]) << launch.kernel->name;  // no tiles
    }
  }
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
