// SPDX-License-Identifier: Apache-2.0
/// Launches as nvcc compiled them, held against what the cubins say that their kernels take.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <device/cuda/kernels.hpp>
#include <device/cuda/launch.hpp>
#include <device/cuda/scratch.hpp>

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

template <class T>
void launch_norm_backward(std::int64_t columns, std::int64_t rows) {
  // Kernels do not run: no memory is needed, only addresses that are aligned as an allocation is.
  const auto tensor = [&]<class E>(E*, const Shape& shape) { return Tensor<E>(reinterpret_cast<E*>(4096), shape); };
  const auto x = tensor(static_cast<T*>(nullptr), {rows, columns}), w = tensor(static_cast<T*>(nullptr), {columns});
  const auto rstd = tensor(static_cast<float*>(nullptr), {rows}), dw = tensor(static_cast<float*>(nullptr), {columns});
  const auto parts = tensor(static_cast<float*>(nullptr), {device::cuda::row_parts(rows) * columns});
  device::cuda::rms_norm_backward<T>({}, x, w, rstd, x, x, Write::overwrite, dw, Write::overwrite, parts);
}

TEST_F(CudaHost_launch, KnowsWhatEveryKernelTakes) {
  ASSERT_FALSE(compiled_kernels().empty());
  for (const CompiledKernel& kernel : compiled_kernels()) EXPECT_GT(kernel.registers, 0u) << kernel.name;
}

TEST_F(CudaHost_launch, AsksForMoreSharedMemoryBeforeAnyKernelNeedsTo) {
  for (const CompiledKernel& kernel : compiled_kernels())
    EXPECT_LE(kernel.static_shared + device::cuda::shared_without_asking, Limits::shared_unasked) << kernel.name;
}

TEST_F(CudaHost_launch, OfTheNormsBackwardIsTakenForEveryNumberOfColumns) {
  for (const std::int64_t columns :
       {1, 64, 8064, 8192, 12224, 12256, 12257, 12272, 12288, 12289, 16384, 24576, 24577}) {
    SCOPED_TRACE(columns);
    EXPECT_NO_THROW(launch_norm_backward<bf16>(columns, 100));
    EXPECT_NO_THROW(launch_norm_backward<f16>(columns, 100));
    EXPECT_NO_THROW(launch_norm_backward<float>(columns, 100));
    for (const Launch& launch : take_launches()) EXPECT_LE(launch.blocks, 256u);
  }
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
