// SPDX-License-Identifier: Apache-2.0
/// The description of attention that is passed to cuDNN: a computation that uses only its pointers, sizes and strides,
/// part by part, gives the result of the reference.
#include "src/fsdp/device/cuda/attention_cudnn.hpp"
#include "src/fsdp/device/cuda/scratch.hpp"

#include "attention_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;
using cuda::AttentionBy;
using cuda::AttentionCall;
using cuda::AttentionPart;

/// The reference for one call; it addresses elements by dims and strides only.
struct ByStrides {
  using C = AttentionCall;
  const AttentionCall& call;

  /// Calls f(element, place) for the elements of a matrix; `place` is the index into [tokens, heads * d].
  template <class F>
  void for_each(std::size_t matrix, const F& f) const {
    const auto dims = call.dims(matrix), strides = call.strides(matrix);
    auto* const data = reinterpret_cast<bf16*>(call.matrices[matrix].data);
    std::size_t place = 0;
    for (std::int64_t s = 0; s < dims[0]; ++s)
      for (std::int64_t t = 0; t < dims[2]; ++t)
        for (std::int64_t h = 0; h < dims[1]; ++h)
          for (std::int64_t c = 0; c < dims[3]; ++c)
            f(data[s * strides[0] + h * strides[1] + t * strides[2] + c * strides[3]], place++);
  }
  Values read(std::size_t matrix) const {
    Values values;
    for_each(matrix, [&](const bf16& x, std::size_t) { values.push_back(static_cast<double>(static_cast<float>(x))); });
    return values;
  }
  void write(std::size_t matrix, const Values& values) const {
    for_each(matrix, [&](bf16& x, std::size_t place) { x = bf16(static_cast<float>(values.at(place))); });
  }
  /// Calls f(element, place) for the log-sum-exp values; `place` is the index into [sequences, heads, length].
  template <class F>
  void for_each_lse(const F& f) const {
    const auto strides = call.lse_strides();
    auto* const data = reinterpret_cast<float*>(call.lse);
    std::size_t place = 0;
    for (std::int64_t s = 0; s < call.shape.sequences; ++s)
      for (std::int64_t h = 0; h < call.shape.heads; ++h)
        for (std::int64_t t = 0; t < call.shape.sequence_length; ++t)
          f(data[s * strides[0] + h * strides[1] + t * strides[2]], place++);
  }

  void run() const {
    Inputs inputs{.q = read(C::q), .k = read(C::k), .v = read(C::v), .dout = {}};
    inputs.dout = call.backward() ? read(C::dout) : Values(inputs.q.size());
    const Results results = attend(call.shape, inputs, Rounding::none);
    if (!call.backward()) {
      write(C::out, results.out);
      return for_each_lse([&](float& x, std::size_t place) { x = static_cast<float>(results.lse.at(place)); });
    }
    EXPECT_LT(relative(read(C::out), results.out), 1.0 / 128) << "out of forward is given";
    for_each_lse([&](float& x, std::size_t place) { EXPECT_NEAR(x, results.lse.at(place), 1e-5); });
    write(C::dq, results.dq);
    write(C::dk, results.dk);
    write(C::dv, results.dv);
  }
};

/// The call that Cuda makes for the buffers of a module.
AttentionCall call_of(Buffers<bf16>& b, bool backward) {
  const Tensor<bf16> q = b.part(b.qkv, 0), k = b.part(b.qkv, 1), v = b.part(b.qkv, 2), out = b.out.view();
  if (!backward) return cuda::attention_call(b.shape, b.lse.input(), q, k, v, out);
  return cuda::attention_call(b.shape, b.lse.input(), q, k, v, out, b.dout.view(), b.part(b.dqkv, 0), b.part(b.dqkv, 1),
                              b.part(b.dqkv, 2));
}

TEST(CudnnAttention, PartsCoverTheProblemAtTheirPointersAndStrides) {
  const AttentionShape shape{.sequences = 4, .sequence_length = 12, .heads = 8, .kv_heads = 4, .head_dim = 8};
  for (const AttentionPart part :
       {AttentionPart{4, 4}, AttentionPart{2, 4}, AttentionPart{1, 4}, AttentionPart{1, 2}, AttentionPart{1, 1}}) {
    Rank rank(1);
    Buffers<bf16> buffers(rank, shape);
    const Results expected = attend(shape, buffers.inputs(), Rounding::none);
    for (const bool backward : {false, true}) {
      const std::vector<AttentionCall> parts = cuda::parts_of(call_of(buffers, backward), part);
      EXPECT_EQ(parts.size(), static_cast<std::size_t>(16 / (part.sequences * part.kv_heads)));
      for (const AttentionCall& call : parts) ByStrides{call}.run();
    }
    const Errors e = errors(buffers.results(), expected);
    EXPECT_LT(std::max({e.out, e.dq, e.dk, e.dv}), 1.0 / 128);
    EXPECT_LT(e.lse, 1e-5);
    EXPECT_TRUE(buffers.gaps_untouched());
  }
}

TEST(CudnnAttention, PartsOfBackwardAreEqualAndFitTheWorkspaceLimit) {
  const auto part = [](std::int64_t sequences, std::int64_t length, std::int64_t heads, std::int64_t kv_heads) {
    return cuda::cudnn_part(
        {.sequences = sequences, .sequence_length = length, .heads = heads, .kv_heads = kv_heads, .head_dim = 128},
        true);
  };
  EXPECT_EQ(part(8, 1024, 32, 8), (AttentionPart{8, 8}));    // 640 MiB
  EXPECT_EQ(part(12, 2048, 32, 8), (AttentionPart{4, 8}));   // the largest divisor of 12 that fits
  EXPECT_EQ(part(2, 4096, 32, 8), (AttentionPart{1, 8}));    // 1089 MiB each
  EXPECT_EQ(part(2, 8192, 32, 8), (AttentionPart{1, 2}));    // 132 MiB a query head
  EXPECT_EQ(part(2, 8192, 64, 8), (AttentionPart{1, 1}));    // the problem that defines the limit
  EXPECT_EQ(part(1, 16384, 64, 8), (AttentionPart{}));       // a single key-value head needs 4 GiB
  EXPECT_EQ(part(1, 16384, 64, 64), (AttentionPart{1, 2}));  // heads without shared keys are computed two at a time
  EXPECT_EQ(part(1, std::int64_t{1} << 40, 64, 8), (AttentionPart{}));
  EXPECT_EQ(
      cuda::cudnn_part({.sequences = 3, .sequence_length = 1 << 30, .heads = 4, .kv_heads = 2, .head_dim = 64}, false),
      (AttentionPart{3, 2}));
}

/// Workspaces that cuDNN 9.19 requested for sm_90 (for a description of the device; no GPU was present).
TEST(CudnnAttention, ScratchFitsTheWorkspaceThatCudnnRequests) {
  const std::pair<AttentionShape, std::int64_t> asked[] = {
      {{.sequences = 1, .sequence_length = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128}, 1141375232},
      {{.sequences = 1, .sequence_length = 8192, .heads = 8, .kv_heads = 1, .head_dim = 128}, 1107558656},
      {{.sequences = 4, .sequence_length = 2048, .heads = 16, .kv_heads = 16, .head_dim = 64}, 537395456},
      {{.sequences = 2, .sequence_length = 257, .heads = 4, .kv_heads = 2, .head_dim = 64}, 2500896},
      {{.sequences = 2, .sequence_length = 31, .heads = 4, .kv_heads = 2, .head_dim = 128}, 259296},
      {{.sequences = 2, .sequence_length = 100, .heads = 4, .kv_heads = 4, .head_dim = 40}, 265600},
      {{.sequences = 3, .sequence_length = 200, .heads = 6, .kv_heads = 3, .head_dim = 8}, 2489152},
  };
  for (const auto& [shape, bytes] : asked) {
    const std::int64_t held = cuda::cudnn_scratch(shape, DType::bf16, true);
    EXPECT_GE(held, bytes) << name(shape, 1);
    EXPECT_LE(held, bytes + cuda::cudnn_slack) << name(shape, 1);
    EXPECT_EQ(cuda::cudnn_scratch(shape, DType::f32, true), 0);
    EXPECT_EQ(cuda::cudnn_scratch(shape, DType::f16, false), cuda::cudnn_slack);
  }
}

TEST(CudnnAttention, ScratchExcludesCudnnInBuildsWithoutIt) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 100, .heads = 4, .kv_heads = 2, .head_dim = 64};
  const std::int64_t own = round_up(200 * 4, 64) + 200 * 4 * 4;
  EXPECT_EQ(cuda::attention_scratch(shape, DType::f32, true), own);
  const std::int64_t cudnn = cuda::cudnn_scratch(shape, DType::bf16, true);
  EXPECT_EQ(cuda::attention_scratch(shape, DType::bf16, true), cuda::has_cudnn ? std::max(own, cudnn) : own);
}

TEST(CudnnAttention, IsUsedForHalfPrecisionAndAlignedRowsOnly) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 12, .heads = 4, .kv_heads = 2, .head_dim = 16};
  alignas(16) std::byte memory[64];
  const auto reason = [&](const auto& change) {
    AttentionCall call{.shape = shape, .dtype = DType::bf16, .lse = memory};
    call.matrices.fill({memory, 64});
    change(call);
    const char* const why = cuda::why_not_cudnn(call);
    return std::string(why == nullptr ? "" : why);
  };
  const std::vector<std::int64_t> documents = {0, 5, 12, 24};
  EXPECT_EQ(reason([](AttentionCall&) {}), "");
  EXPECT_EQ(reason([](AttentionCall& c) { c.dtype = DType::f16; }), "");
  EXPECT_EQ(reason([](AttentionCall& c) { c.shape.head_dim = 128; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.dtype = DType::f32; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.shape.head_dim = 12; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.shape.head_dim = 136; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.shape.sequence_length = 1; }), "");
  EXPECT_NE(reason([&](AttentionCall& c) { c.shape.documents = documents; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.shape.window = 3; }), "");
  EXPECT_EQ(reason([](AttentionCall& c) { c.shape.window = 12; }), "");  // as long as the sequence
  EXPECT_NE(reason([](AttentionCall& c) { c.matrices[AttentionCall::k].data += 2; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.matrices[AttentionCall::dv].row_stride = 67; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.lse += 4; }), "");
  EXPECT_NE(reason([](AttentionCall& c) { c.shape.sequence_length = 60000; }), "");
  const auto in_parts = [](AttentionCall& c) {
    c.shape.sequences = 2, c.shape.sequence_length = 8191, c.shape.heads = 8;
  };
  EXPECT_NE(reason(in_parts), "");
  EXPECT_EQ(reason([&](AttentionCall& c) { in_parts(c), c.shape.sequence_length = 8192; }), "");
}

TEST(CudnnAttention, EnvironmentSelectsTheKernelAndRefusesWrongValues) {
  EXPECT_EQ(cuda::attention_by(nullptr, true), AttentionBy::either);
  EXPECT_EQ(cuda::attention_by("", false), AttentionBy::either);
  EXPECT_EQ(cuda::attention_by("own", false), AttentionBy::own);
  EXPECT_EQ(cuda::attention_by("cudnn", true), AttentionBy::cudnn);
  EXPECT_THROW(cuda::attention_by("cudnn", false), InputError);
  EXPECT_THROW(cuda::attention_by("flash", true), InputError);
}

}  // namespace
}  // namespace fsdp::device
