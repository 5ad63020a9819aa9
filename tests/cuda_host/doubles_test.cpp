// SPDX-License-Identifier: Apache-2.0
/// The fakes detect planted errors: each test breaks one rule and checks that it is reported.
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tessera/comm/collectives.hpp>

#include <support/cuda_emulation/controls.hpp>

#include "on_doubles.hpp"

namespace fsdp::testing::cuda_host {
namespace {

namespace emulation = device::cuda::emulation;

using device::Cuda;
using std::chrono::milliseconds;

class CudaHost_doubles : public OnDoubles {};

TEST_F(CudaHost_doubles, CopiesOfPageableMemoryBlockTheHost) {
  Cuda::Queue queue("queue");
  const DeviceMemory memory(100);
  std::vector<std::byte> pageable(100);
  std::atomic<bool> go = false;
  hold(queue, go);
  machine().patience = milliseconds(50);
  EXPECT_NE(cudaMemcpyAsync(pageable.data(), memory.data(), 100, cudaMemcpyDefault, native(queue)), cudaSuccess);
  expect_problem("blocked in a copy of pageable memory");
  machine().patience = milliseconds(3000);
  go = true;
  queue.synchronize();
}

TEST_F(CudaHost_doubles, RefuseCopiesBeyondTheEndOfMemory) {
  Cuda::Queue queue("queue");
  const DeviceMemory from(100), to(200);
  EXPECT_NE(cudaMemcpyAsync(to.data(), from.data(), 101, cudaMemcpyDefault, native(queue)), cudaSuccess);
  expect_problem("leaves the memory it reads");
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(CudaHost_doubles, RefuseToFreeMemoryTwice) {
  std::byte* const data = Cuda::allocate(100);
  Cuda::deallocate(data, 100);
  Cuda::deallocate(data, 100);
  expect_problem("cudaFree of what cudaMalloc did not give");
}

TEST_F(CudaHost_doubles, ContextsAreCreatedOnTheDeviceOfTheCallingThread) {
  std::thread([] {
    device::use_cuda_device(1);
    Cuda::deallocate(Cuda::allocate(100), 100);
  }).join();
  EXPECT_EQ(machine().contexts(), std::set<int>{1});
  std::thread([] { Cuda::deallocate(Cuda::allocate(100), 100); }).join();  // a thread that did not select a device
  EXPECT_EQ(machine().contexts(), (std::set<int>{0, 1}));
}

/// A product of matrices of 4 x 4 floats.
struct Product {
  Product() {
    cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatrixLayoutCreate(&whole, CUDA_R_32F, 4, 4, 4);
    cublasLtMatrixLayoutCreate(&narrow, CUDA_R_32F, 4, 4, 3);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    cublasLtMatrixLayoutDestroy(whole);
    cublasLtMatrixLayoutDestroy(narrow);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(description);
  }
  cublasStatus_t find(cublasLtMatrixLayout_t first) {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(nullptr, description, first, whole, whole, whole, preference, 1, &best,
                                          &found);
  }
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t whole = nullptr, narrow = nullptr;
  cublasLtMatmulHeuristicResult_t best{};
};

TEST_F(CudaHost_doubles, LeadingDimensionsMustNotBeLessThanTheRows) {
  Product product;
  EXPECT_EQ(product.find(product.whole), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(product.find(product.narrow), CUBLAS_STATUS_SUCCESS);
  expect_problem("a leading dimension is less than the rows");
}

TEST_F(CudaHost_doubles, RefuseAWorkspaceThatIsAlignedTo64BytesOnly) {
  Product product;
  ASSERT_EQ(product.find(product.whole), CUBLAS_STATUS_SUCCESS);
  Cuda::Queue queue("queue");
  const DeviceMemory matrices(256), workspace(1024);
  const float one = 1, zero = 0;
  const auto multiply = [&](std::int64_t offset) {
    void* const data = matrices.data();
    return cublasLtMatmul(nullptr, product.description, &one, data, product.whole, data, product.whole, &zero, data,
                          product.whole, data, product.whole, &product.best.algo, workspace.data() + offset, 512,
                          native(queue));
  };
  EXPECT_EQ(multiply(256), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(multiply(64), CUBLAS_STATUS_SUCCESS);
  expect_problem("the workspace is not aligned to 256 bytes");
  queue.synchronize();
}

TEST_F(CudaHost_doubles, AMissingWaitChangesTheResult) {
  const DeviceMemory from(100), to(100);
  for (const bool waits : {true, false}) {
    Cuda::Queue queue("queue"), other("other");
    std::atomic<bool> go = false;
    cudaMemset(to.data(), 0, 100);
    cudaStreamSynchronize(nullptr);
    hold(queue, go);
    machine().submit(native(queue), [&] { from.data()[0] = std::byte{7}; });
    if (waits) other.wait(queue.record());
    Cuda::move(other, from.data(), to.data(), 100);
    if (!waits) other.synchronize();  // nothing blocks it
    go = true;
    other.synchronize();
    queue.synchronize();
    EXPECT_EQ(to.data()[0], waits ? std::byte{7} : std::byte{0});
    from.data()[0] = std::byte{0};
  }
}

TEST_F(CudaHost_doubles, ReportAMissingBarrierInAKernel) {
  device::Ledger ledger;
  Cuda::Arena arena(ledger, 1 << 16);
  Cuda::Stream stream(arena);
  const auto row = arena.allocate<double>(Cuda::Arena::End::low, {4096});
  const auto sum = arena.allocate<double>(Cuda::Arena::End::low, {1});
  const auto state = Tensor<const double>(row.data(), {1024, 3});
  const auto add_up = [&] {
    device::enqueue(stream, device::CrossEntropySum{.state = state, .loss = sum});
    stream.synchronize();
  };
  emulation::take_sites();
  add_up();
  const std::vector<std::string> sites = emulation::take_sites();
  ASSERT_FALSE(sites.empty());
  EXPECT_TRUE(machine().take_problems().empty());
  emulation::leave_out(sites.back());  // the barrier between writes of warps and reads of all threads
  add_up();
  emulation::leave_out({});
  expect_problem("of static shared memory");
}

TEST_F(CudaHost_doubles, AbortBlocksUntilTheGraphOfACollectiveIsDestroyed) {
  Cuda::Queue queue("queue");
  const DeviceMemory memory(100);
  comm::nccl::Id id = comm::nccl::make_id(comm::nccl::library());
  comm::nccl::Comm communicator = nullptr;
  comm::nccl::library().init(communicator, 1, id, 0);
  ncclResult_t state = ncclInProgress;
  const Cuda::Graph graph = Cuda::capture(queue, [&] {
    ncclGroupStart();
    ncclAllReduce(memory.data(), memory.data(), 10, ncclFloat32, ncclSum, communicator, native(queue));
    ncclGroupEnd();
    ncclCommGetAsyncError(communicator, &state);
  });
  EXPECT_EQ(state, ncclSuccess);
  machine().patience = milliseconds(50);
  ncclCommAbort(communicator);
  expect_problem("ncclCommAbort blocks: 1 graphs");
  machine().patience = milliseconds(3000);
}

TEST_F(CudaHost_doubles, CollectivesOfACommunicatorRunInLaunchOrder) {
  comm::Threads<>::run(2, {}, [&, id = comm::nccl::make_id(comm::nccl::library())](auto& host) {
    device::use_cuda_device(host.rank());
    comm::nccl::Comm communicator = nullptr;
    comm::nccl::library().init(communicator, 2, id, host.rank());
    const auto settle = [&] {
      for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) ncclCommGetAsyncError(communicator, &state);
    };
    settle();
    Cuda::Queue first("first"), second("second");
    const DeviceMemory memory(100);
    if (host.rank() == 0)  // its second queue is ready long before its first
      machine().submit(native(first), [] { std::this_thread::sleep_for(milliseconds(50)); });
    for (auto* const queue : {&first, &second}) {
      const std::size_t count = queue == &first ? 10 : 11;
      ncclGroupStart();
      ncclAllReduce(memory.data(), memory.data(), count, ncclFloat32, ncclSum, communicator, native(*queue));
      ncclGroupEnd();
      settle();
    }
    first.synchronize();
    second.synchronize();
    ncclCommDestroy(communicator);
  });
  EXPECT_TRUE(machine().take_problems().empty());
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
