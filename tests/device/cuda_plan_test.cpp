// SPDX-License-Identifier: Apache-2.0
/// The dry run of Cuda uses exactly the scratch that Cuda uses, to the byte, and counts the same work.
#include <cstdint>
#include <vector>

#include <tessera/fsdp/device/meta.hpp>

#include "cuda_reference.hpp"
#include "trace.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

static_assert(check_device<MetaOf<Cuda>>());

template <class Operation>
void expect_cuda_costs(const char* name, const Operation& operation) {
  Ledger ledger;
  expect_equal_costs<Cuda, MetaOf<Cuda>>(name, Cuda::Arena(ledger, std::int64_t{48} << 20), 1, operation);
}

template <class T>
void expect_plans_of() {
  expect_cuda_costs("matmul", [](auto device, auto& arena, auto& stream) {
    const Maker<decltype(device)> maker{arena, stream};
    const Tensor<T> a = maker.template make<T>({36, 96}), c = maker.template make<T>({36, 36});
    enqueue(stream, Matmul<T>{.a = a, .b = transposed(a), .c = c});
  });
  const std::vector<std::int64_t> lengths = {0, 5, 18, 36};
  for (const CumulativeLengths documents : {CumulativeLengths(), CumulativeLengths(lengths)}) {
    for_each_traced_operation<T>(36, documents,
                                 [](const char* name, const auto& operation) { expect_cuda_costs(name, operation); });
    expect_cuda_costs("attention", traced_attention<T>({.sequences = 2,
                                                        .sequence_length = 18,
                                                        .heads = 6,
                                                        .kv_heads = 3,
                                                        .head_dim = 16,
                                                        .documents = documents}));
  }
}

TEST(CudaPlan, MatchesTheMemoryAndCostsOfCuda) {
  FSDP_NEEDS_DEVICE();
  for_types([]<class T>(T) { expect_plans_of<T>(); });
  expect_cuda_costs("optimizer", traced_optimizer<float>());
  expect_cuda_costs("optimizer", traced_optimizer<bf16>());
}

}  // namespace
}  // namespace fsdp::device
