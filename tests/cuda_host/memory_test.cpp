// SPDX-License-Identifier: Apache-2.0
/// Devices and memory: the calls of memory.cpp to CUDA's runtime.
#include <set>
#include <vector>

#include "on_doubles.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using device::Cuda;

class CudaHost_memory : public OnDoubles {};

TEST_F(CudaHost_memory, IsZeroedAlignedAndFreed) {
  {
    device::Ledger ledger;
    const device::Block<Cuda> block(ledger, device::MemoryKind::weights, 1000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 256, 0u);
    EXPECT_EQ(std::vector<std::byte>(block.data(), block.data() + 1000), std::vector<std::byte>(1000));
    EXPECT_EQ(machine().held(), (std::map<std::string, int>{{"device blocks", 1}}));
  }
  EXPECT_EQ(Cuda::allocate(0), nullptr);
}

TEST_F(CudaHost_memory, OutOfMemoryErrorReportsTheFreeBytes) {
  machine().device_bytes = 1 << 20;
  std::byte* const half = Cuda::allocate(1 << 19);
  try {
    Cuda::allocate(1 << 20);
    FAIL() << "no error";
  } catch (const MemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("524288 of 1048576 are free"), std::string::npos) << error.what();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the next launch would find it";
  Cuda::deallocate(half, 1 << 19);
}

TEST_F(CudaHost_memory, StickyErrorsFailTheNextCall) {
  std::byte* const data = Cuda::allocate(100);
  machine().break_device(0, cudaErrorIllegalAddress);
  EXPECT_THROW(Cuda::allocate(100), Error);
  Cuda::deallocate(data, 100);  // destructors call it, so it must not throw
  machine().reset(2);
}

TEST_F(CudaHost_memory, DevicesHaveUuidsAndPciAddresses) {
  EXPECT_EQ(Cuda::uuid(1), "GPU-00112233-4455-6677-8899-aabbccddee01");
  EXPECT_EQ(Cuda::bus_id(1), "0000:1c:00.0");
  EXPECT_EQ(machine().contexts(), std::set<int>()) << "a context takes memory";
}

TEST_F(CudaHost_memory, ErrorsOfTheDriverAreReportedInWords) {
  EXPECT_EQ(device::cuda_problem(), "");
  machine().fail("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  EXPECT_NE(device::cuda_problem().find("install a newer driver"), std::string::npos);
  machine().fail("cudaFuncGetAttributes", cudaErrorNoKernelImageForDevice);
  EXPECT_NE(device::cuda_problem().find("TESSERA_CUDA_ARCHITECTURES=90"), std::string::npos);
  machine().reset(0);
  EXPECT_NE(device::cuda_problem().find("sees no GPU"), std::string::npos);
  EXPECT_THROW(Cuda::count(), InputError);
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
