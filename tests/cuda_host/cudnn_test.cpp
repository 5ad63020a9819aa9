// SPDX-License-Identifier: Apache-2.0
/// Attention by cuDNN: the calls of attention_cudnn.cpp and cudnn-frontend to a fake library, in parts, captured,
/// refused, and with every call failing once. The results for all shapes are checked by the tests of device::Cuda named
/// ByCudnn, on the same fakes.
#include <cudnn.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/fsdp/device/cuda/attention_cudnn.hpp"

#include <device/cuda_attention.hpp>

#include "doubles/cudnn.hpp"
#include "on_doubles.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using device::AttentionShape;
using device::Cuda;
using namespace device::reference;

constexpr AttentionShape small{.sequences = 2, .sequence_length = 64, .heads = 4, .kv_heads = 2, .head_dim = 16};

class CudaHost_cudnn : public OnDoubles {
 protected:
  void SetUp() override {
    OnDoubles::SetUp();
    CudnnDouble::reset();
    machine().patience = std::chrono::minutes(1);  // other kernels are emulated, which is slow
  }
  void TearDown() override {
    device::cuda::cudnn_limit = limit_;
    OnDoubles::TearDown();
  }
  static int calls(const std::string& function) { return machine().calls()[function]; }
  static int plans() { return machine().held()["cuDNN's handles"]; }

  /// Sets the workspace limit to that of `kv_heads` key-value heads of `shape` in one part of backward.
  static void allow(const AttentionShape& shape, std::int64_t kv_heads) {
    device::cuda::cudnn_limit =
        kv_heads * (shape.heads / shape.kv_heads) * device::cuda::cudnn_backward_scratch_per_head(shape) +
        device::cuda::cudnn_slack;
  }
  /// Returns the error of an attention that cuDNN cannot compute; empty if there is none.
  static std::string refusal(const AttentionShape& shape) {
    try {
      expect_reference<bf16>(shape, false, 0, "cudnn");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  /// cudnn-frontend describes plans for its log by these calls, and ignores their failure. Results stay correct.
  static bool frontend_may_ignore(const std::string& function) {
    return function == "cudnnBackendCreateDescriptor" || function == "cudnnBackendGetAttribute";
  }

 private:
  std::int64_t limit_ = device::cuda::cudnn_limit;
};

TEST_F(CudaHost_cudnn, PlansAProblemOnceAndRunsItAtAnyAddresses) {
  AttentionRank chosen("cudnn", false);
  CudaBuffers<bf16> one(chosen.rank, small, 0), two(chosen.rank, small, 0), wider(chosen.rank, small, 8);
  one.run(chosen.rank);
  const int planned = calls("cudnnBackendFinalize"), created = machine().held()["cuDNN's descriptors"];
  two.run(chosen.rank);
  EXPECT_EQ(calls("cudnnBackendExecute"), 4);
  EXPECT_EQ(calls("cudnnBackendFinalize"), planned + 2) << "a pack of addresses each, and nothing else";
  EXPECT_EQ(machine().held()["cuDNN's descriptors"], created);
  wider.run(chosen.rank);  // different strides
  EXPECT_GT(machine().held()["cuDNN's descriptors"], created);
  EXPECT_EQ(plans(), 1);
}

TEST_F(CudaHost_cudnn, IsNotUsedIfOurKernelsAreSelected) {
  const AttentionShape tiny{.sequences = 1, .sequence_length = 12, .heads = 2, .kv_heads = 1, .head_dim = 16};
  expect_reference<bf16>(tiny, false, 0, "own");
  EXPECT_EQ(calls("cudnnCreate"), 0);
  expect_reference<bf16>(tiny, false, 0, "");
  EXPECT_EQ(calls("cudnnBackendExecute"), 2);
  expect_reference<float>(tiny, false, 0, "");  // cuDNN does not support float
  EXPECT_EQ(calls("cudnnBackendExecute"), 2);
  expect_has(refusal({.sequences = 1, .sequence_length = 8, .heads = 1, .kv_heads = 1, .head_dim = 136}), "head sizes");
}

TEST_F(CudaHost_cudnn, SplitsBackwardIntoPartsWithinTheWorkspaceLimit) {
  const AttentionShape alone{.sequences = 2, .sequence_length = 36, .heads = 3, .kv_heads = 3, .head_dim = 8};
  for (const AttentionShape& shape : {small, alone})
    for (const std::int64_t heads : {shape.kv_heads, std::int64_t{1}}) {
      allow(shape, heads);
      const int before = calls("cudnnBackendExecute");
      expect_reference<bf16>(shape, false, 8, "cudnn");
      expect_reference<f16>(shape, false, 0, "cudnn");
      const auto parts = static_cast<int>(shape.sequences * shape.kv_heads / heads);
      EXPECT_EQ(calls("cudnnBackendExecute") - before, 2 * (1 + parts));
    }
}

TEST_F(CudaHost_cudnn, FallsBackToOurBackwardIfOneHeadExceedsTheLimit) {
  allow(small, 1);
  --device::cuda::cudnn_limit;
  expect_reference<bf16>(small, false, 0, "");
  EXPECT_EQ(calls("cudnnBackendExecute"), 1);
  expect_has(refusal(small), "scratch for one key-value head");
}

TEST_F(CudaHost_cudnn, UsesThePlannedScratch) {
  for (const AttentionShape& shape :
       {small, AttentionShape{.sequences = 1, .sequence_length = 131, .heads = 4, .kv_heads = 1, .head_dim = 40}}) {
    AttentionRank chosen("cudnn", false);
    CudaBuffers<bf16> buffers(chosen.rank, shape, 0);
    buffers.run(chosen.rank);
    EXPECT_EQ(chosen.rank.arena.peak(), round_up(device::cuda::cudnn_scratch(shape, DType::bf16, true), 64));
    // The workspace of the frontend and the library fits to the byte: it may grow by the slack, less 256 bytes for
    // alignment here and the 256 bytes of it that cuDNN 9.19 uses.
    CudnnDouble::more_workspace = device::cuda::cudnn_slack - 512;
    expect_reference<bf16>(shape, false, 0, "cudnn");
    ++CudnnDouble::more_workspace;
    expect_has(refusal(shape), "bytes of scratch, and plans hold");
    CudnnDouble::more_workspace = 0;
  }
}

TEST_F(CudaHost_cudnn, FallsBackToOurKernelsIfNoEngineSupportsTheProblem) {
  CudnnDouble::takes_nothing = true;
  expect_reference<bf16>(small, false, 0, "");
  EXPECT_EQ(calls("cudnnBackendExecute"), 0);
  expect_has(refusal(small), "cuDNN does not take this attention: ");
}

TEST_F(CudaHost_cudnn, FallsBackToOurBackwardForOddLengthsInOldVersions) {
  CudnnDouble::version = 91500;
  expect_reference<bf16>(small, false, 0, "");
  EXPECT_EQ(calls("cudnnBackendExecute"), 1);
  expect_has(refusal(small), "multiples of 128");
  expect_reference<bf16>({.sequences = 1, .sequence_length = 128, .heads = 2, .kv_heads = 1, .head_dim = 16}, false, 0,
                         "cudnn");
  CudnnDouble::version = 91600;
  expect_reference<bf16>(small, false, 0, "cudnn");
}

TEST_F(CudaHost_cudnn, IsCapturedAndReplayed) {
  AttentionRank chosen("cudnn", false);
  CudaBuffers<bf16> buffers(chosen.rank, small, 8);
  const Results expected = attend(small, buffers.inputs(), Rounding::none);
  buffers.run(chosen.rank);
  const Results queued = buffers.results();
  const Cuda::Graph graph = Cuda::capture(chosen.rank.stream, [&] { buffers.run(chosen.rank); });
  for (int launch = 0; launch < 2; ++launch) {
    for (const Tensor<bf16>& made : {buffers.out.view(), buffers.dqkv.view()})  // device memory is host memory here
      std::fill_n(made.data(), (made.rows() - 1) * made.row_stride() + made.columns(), bf16(0.0f));
    graph.launch(chosen.rank.stream);
    const Results found = buffers.results();
    EXPECT_LT(errors(found, expected).out, CudaRank::tolerance<bf16>);
    EXPECT_TRUE(found == queued);
  }
}

TEST_F(CudaHost_cudnn, AFailedCallThrowsAndReleasesEverything) {
  const AttentionShape shape{.sequences = 1, .sequence_length = 8, .heads = 2, .kv_heads = 1, .head_dim = 8};
  expect_reference<bf16>(shape, false, 0, "cudnn");
  const std::map<std::string, int> all = machine().calls();
  int failed = 0;
  for (const auto& [function, count] : all) {
    if (function.rfind("cudnn", 0) != 0) continue;
    for (int nth = 1; nth <= count; nth += std::max(1, count / 24)) {
      SCOPED_TRACE(message(function, ", call ", nth, " of ", count));
      machine().fail(function, cudaErrorUnknown, nth);
      try {
        expect_reference<bf16>(shape, false, 0, "cudnn");
        EXPECT_TRUE(frontend_may_ignore(function)) << "no error";
      } catch (const Error& error) {
        expect_has(error.what(), "cuDNN");
      }
      EXPECT_FALSE(machine().will_fail());
      expect_clean();
      ++failed;
    }
  }
  EXPECT_GT(failed, 80);
}

TEST_F(CudaHost_cudnn, FallsBackToOurKernelsIfPlanningFails) {
  for (const char* function :
       {"cudnnCreate", "cudnnSetStream", "cudnnBackendCreateDescriptor", "cudnnBackendFinalize"}) {
    machine().fail(function, cudaErrorUnknown);
    expect_reference<bf16>(small, false, 0, "");
    EXPECT_FALSE(machine().will_fail());
  }
}

/// Descriptors without the frontend: each rule that the fake enforces is broken once.
class CudaHost_cudnn_rules : public OnDoubles {
 protected:
  struct Made {
    explicit Made(cudnnBackendDescriptorType_t type) { cudnnBackendCreateDescriptor(type, &handle); }
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;
    ~Made() { cudnnBackendDestroyDescriptor(handle); }
    template <class T>
    cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      const std::vector<T>& values) {
      return cudnnBackendSetAttribute(handle, name, type, static_cast<std::int64_t>(values.size()), values.data());
    }
    cudnnStatus_t finalize() { return cudnnBackendFinalize(handle); }
    cudnnBackendDescriptor_t handle = nullptr;
  };
  struct TensorOf : Made {
    explicit TensorOf(std::int64_t uid, bool is_virtual = false, std::int64_t alignment = 16,
                      const std::vector<std::int64_t>& dims = {1, 1, 4, 4})
        : Made(CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
      set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT});
      set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
      set<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, {16, 16, 4, 1});
      set<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {uid});
      set<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {alignment});
      set<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, {static_cast<char>(is_virtual)});
    }
  };
};

TEST_F(CudaHost_cudnn_rules, DescriptorsAreSetThenFinalizedThenRead) {
  Made tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_NE(tensor.finalize(), CUDNN_STATUS_SUCCESS);
  expect_problem("lacks attribute");
  EXPECT_EQ(tensor.set<std::int64_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, {0}),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  expect_problem("is of another type");
  TensorOf whole(1);
  std::int64_t count = 0, uid = 0;
  const auto read = [&] {
    return cudnnBackendGetAttribute(whole.handle, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &count, &uid);
  };
  EXPECT_NE(read(), CUDNN_STATUS_SUCCESS);
  expect_problem("not finalized");
  EXPECT_EQ(whole.finalize(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(read(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(uid, 1);
  EXPECT_NE(whole.set<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {2}), CUDNN_STATUS_SUCCESS);
  expect_problem("of a finalized descriptor");
  EXPECT_NE(TensorOf(2, false, 3).finalize(), CUDNN_STATUS_SUCCESS);
  expect_problem("is aligned to 3 bytes");
  EXPECT_NE(TensorOf(3, false, 16, {4, 4}).finalize(), CUDNN_STATUS_SUCCESS);
  expect_problem("not of four dimensions");
  EXPECT_NE(cudnnBackendFinalize(nullptr), CUDNN_STATUS_SUCCESS);  // reported by the status alone
  cudnnBackendDescriptor_t gone = &count;
  EXPECT_NE(cudnnBackendFinalize(gone), CUDNN_STATUS_SUCCESS);
  expect_problem("never created");
}

TEST_F(CudaHost_cudnn_rules, GraphsNeedFinalizedAndConsistentDescriptors) {
  TensorOf x(1), y(2), lost(3, true), wide(4, false, 16, {1, 1, 4, 3});
  Made exp(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  exp.set<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, {CUDNN_POINTWISE_EXP});
  exp.set<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT});
  Made unready(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  EXPECT_EQ(unready.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{x.handle}),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  expect_problem("that is not finalized");
  for (Made* part :
       {static_cast<Made*>(&x), static_cast<Made*>(&y), static_cast<Made*>(&lost), static_cast<Made*>(&wide), &exp})
    ASSERT_EQ(part->finalize(), CUDNN_STATUS_SUCCESS);
  const auto graph_of = [&](Made& from, Made& to) {
    Made operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR), graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const auto refers = [&](cudnnBackendAttributeName_t name, Made& part) {
      operation.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{part.handle});
    };
    refers(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, exp);
    refers(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
    refers(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    EXPECT_EQ(operation.finalize(), CUDNN_STATUS_SUCCESS);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{operation.handle});
    return graph.finalize();
  };
  EXPECT_EQ(graph_of(x, y), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(graph_of(x, wide), CUDNN_STATUS_SUCCESS);
  expect_problem("of another shape");
  EXPECT_NE(graph_of(lost, y), CUDNN_STATUS_SUCCESS);
  expect_problem("is written by no operation");
}

TEST_F(CudaHost_cudnn_rules, VariantPacksGiveEachTensorOneAddress) {
  Made pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  int somewhere = 0;
  pack.set<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, {1, 1});
  pack.set<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, {&somewhere, &somewhere});
  pack.set<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {&somewhere});
  EXPECT_EQ(pack.finalize(), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
  expect_problem("a tensor has two addresses");
}

}  // namespace
}  // namespace fsdp::testing::cuda_host
