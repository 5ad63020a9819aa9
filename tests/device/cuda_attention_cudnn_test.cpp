// SPDX-License-Identifier: Apache-2.0
/// What cuDNN is told of attention: a computation that sees only the pointers, sizes and strides it is given, one part
/// after the other, is the reference.
#include "src/fsdp/device/cuda/attention_cudnn.hpp"
#include "src/fsdp/device/cuda/scratch.hpp"

#include "attention_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;
using cuda::AttentionBy;
using cuda::AttentionCall;
using cuda::AttentionPart;

/// Attention as its definition says, of elements found by dims and strides alone; one element at a time.
struct ByStrides {
  const AttentionCall& call;

  bf16& at(std::size_t matrix, std::int64_t sequence, std::int64_t head, std::int64_t token,
           std::int64_t column) const {
    const auto dims = call.dims(matrix), strides = call.strides(matrix);
    EXPECT_TRUE(sequence < dims[0] && head < dims[1] && token < dims[2] && column < dims[3]);
    return reinterpret_cast<bf16*>(call.matrices[matrix].data)[sequence * strides[0] + head * strides[1] +
                                                               token * strides[2] + column * strides[3]];
  }
  double read(std::size_t matrix, std::int64_t s, std::int64_t h, std::int64_t t, std::int64_t c) const {
    return static_cast<double>(static_cast<float>(at(matrix, s, h, t, c)));
  }
  float& lse(std::int64_t sequence, std::int64_t head, std::int64_t token) const {
    const auto strides = call.lse_strides();
    return reinterpret_cast<float*>(call.lse)[sequence * strides[0] + head * strides[1] + token * strides[2]];
  }
  /// The rows of two matrices multiplied.
  double product(std::size_t a, std::size_t b, std::int64_t s, std::int64_t h, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t c = 0; c < call.shape.head_dim; ++c)
      sum += read(a, s, head(a, h), i, c) * read(b, s, head(b, h), j, c);
    return sum;
  }
  /// Query head h's head of a matrix.
  std::int64_t head(std::size_t matrix, std::int64_t h) const { return h / (call.shape.heads / call.heads(matrix)); }

  void forward(std::int64_t s, std::int64_t h) const {
    for (std::int64_t i = 0; i < call.shape.sequence_length; ++i) {
      double total = 0;
      std::vector<double> row(static_cast<std::size_t>(call.shape.head_dim));
      for (std::int64_t j = 0; j <= i; ++j) {
        const double weight = std::exp(scale * product(AttentionCall::q, AttentionCall::k, s, h, i, j));
        total += weight;
        for (std::size_t c = 0; c < row.size(); ++c)
          row[c] += weight * read(AttentionCall::v, s, head(AttentionCall::v, h), j, static_cast<std::int64_t>(c));
      }
      lse(s, h, i) = static_cast<float>(std::log(total));
      for (std::size_t c = 0; c < row.size(); ++c)
        at(AttentionCall::out, s, h, i, static_cast<std::int64_t>(c)) = bf16(static_cast<float>(row[c] / total));
    }
  }

  /// A key-value head's dk and dv, and dq of the query heads that share it.
  void backward(std::int64_t s, std::int64_t kv_head) const {
    using C = AttentionCall;
    const std::int64_t length = call.shape.sequence_length, group = call.shape.heads / call.shape.kv_heads;
    const auto add = [&](std::vector<double>& sums, std::int64_t row, double factor, std::size_t matrix, std::int64_t h,
                         std::int64_t from) {
      for (std::int64_t c = 0; c < call.shape.head_dim; ++c)
        sums[static_cast<std::size_t>(row * call.shape.head_dim + c)] +=
            factor * read(matrix, s, head(matrix, h), from, c);
    };
    const auto store = [&](const std::vector<double>& sums, std::size_t matrix, std::int64_t own_head) {
      for (std::int64_t t = 0; t < length; ++t)
        for (std::int64_t c = 0; c < call.shape.head_dim; ++c)
          at(matrix, s, own_head, t, c) =
              bf16(static_cast<float>(sums[static_cast<std::size_t>(t * call.shape.head_dim + c)]));
    };
    const auto numbers = static_cast<std::size_t>(length * call.shape.head_dim);
    std::vector<double> dk(numbers), dv(numbers);
    for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      std::vector<double> dq(numbers);
      for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          const double p = std::exp(scale * product(C::q, C::k, s, h, i, j) - static_cast<double>(lse(s, h, i)));
          const double ds = scale * p * (product(C::dout, C::v, s, h, i, j) - product(C::dout, C::out, s, h, i, i));
          add(dv, j, p, C::dout, h, i);
          add(dk, j, ds, C::q, h, i);
          add(dq, i, ds, C::k, h, j);
        }
      store(dq, C::dq, h);
    }
    store(dk, C::dk, kv_head);
    store(dv, C::dv, kv_head);
  }

  void run() const {
    for (std::int64_t s = 0; s < call.shape.sequences; ++s) {
      for (std::int64_t h = 0; h < call.shape.heads && !call.backward(); ++h) forward(s, h);
      for (std::int64_t h = 0; h < call.shape.kv_heads && call.backward(); ++h) backward(s, h);
    }
  }
  double scale = 1 / std::sqrt(static_cast<double>(call.shape.head_dim));
};

/// The call that Cuda makes of what a module holds.
AttentionCall call_of(Buffers<bf16>& b, bool backward) {
  const Tensor<bf16> q = b.part(b.qkv, 0), k = b.part(b.qkv, 1), v = b.part(b.qkv, 2), out = b.out.view();
  if (!backward) return cuda::attention_call(b.shape, b.lse.input(), q, k, v, out);
  return cuda::attention_call(b.shape, b.lse.input(), q, k, v, out, b.dout.view(), b.part(b.dqkv, 0), b.part(b.dqkv, 1),
                              b.part(b.dqkv, 2));
}

TEST(CudnnAttention, PartsCoverTheProblemWithTheirOwnPointersAndStrides) {
  const AttentionShape shape{.sequences = 4, .sequence_length = 12, .heads = 8, .kv_heads = 4, .head_dim = 8};
  for (const AttentionPart part :
       {AttentionPart{4, 4}, AttentionPart{2, 4}, AttentionPart{1, 4}, AttentionPart{1, 2}, AttentionPart{1, 1}}) {
    Buffers<bf16> buffers(shape);
    const Results expected = attend(shape, buffers.inputs(), Rounding::none);
    for (const bool backward : {false, true}) {
      const std::vector<AttentionCall> parts = cuda::parts_of(call_of(buffers, backward), part);
      EXPECT_EQ(parts.size(), static_cast<std::size_t>(16 / (part.sequences * part.kv_heads)));
      for (const AttentionCall& call : parts) ByStrides{call}.run();
    }
    const Errors e = errors(buffers.results(), expected);
    EXPECT_LT(std::max({e.out, e.dq, e.dk, e.dv}), 1.0 / 128);
    EXPECT_LT(e.lse, 1e-5);
    EXPECT_TRUE(buffers.out.gaps_untouched() && buffers.dqkv.gaps_untouched());
  }
}

TEST(CudnnAttention, PartsOfBackwardAreEqualAndWithinTheLimit) {
  const auto part = [](std::int64_t sequences, std::int64_t length, std::int64_t heads, std::int64_t kv_heads) {
    return cuda::cudnn_part(
        {.sequences = sequences, .sequence_length = length, .heads = heads, .kv_heads = kv_heads, .head_dim = 128},
        true);
  };
  EXPECT_EQ(part(8, 1024, 32, 8), (AttentionPart{8, 8}));    // 640 MiB
  EXPECT_EQ(part(12, 2048, 32, 8), (AttentionPart{4, 8}));   // as many as divide 12
  EXPECT_EQ(part(2, 4096, 32, 8), (AttentionPart{1, 8}));    // 1089 MiB each
  EXPECT_EQ(part(2, 8192, 32, 8), (AttentionPart{1, 2}));    // 132 MiB a query head
  EXPECT_EQ(part(2, 8192, 64, 8), (AttentionPart{1, 1}));    // what the limit is named after
  EXPECT_EQ(part(1, 16384, 64, 8), (AttentionPart{}));       // one key-value head takes 4 GiB
  EXPECT_EQ(part(1, 16384, 64, 64), (AttentionPart{1, 2}));  // heads that share nothing are done two at a time
  EXPECT_EQ(part(1, std::int64_t{1} << 40, 64, 8), (AttentionPart{}));
  EXPECT_EQ(
      cuda::cudnn_part({.sequences = 3, .sequence_length = 1 << 30, .heads = 4, .kv_heads = 2, .head_dim = 64}, false),
      (AttentionPart{3, 2}));
}

/// Workspaces that cuDNN 9.19 asked for on sm_90 (a device described to it, none present).
TEST(CudnnAttention, ScratchHoldsWhatCudnnAsksFor) {
  struct SignalRequests {
    AttentionShape shape;
    std::int64_t bytes;
  };
  const SignalRequests asked[] = {
      {{.sequences = 1, .sequence_length = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128}, 1141375232},
      {{.sequences = 1, .sequence_length = 8192, .heads = 8, .kv_heads = 1, .head_dim = 128}, 1107558656},
      {{.sequences = 4, .sequence_length = 2048, .heads = 16, .kv_heads = 16, .head_dim = 64}, 537395456},
      {{.sequences = 2, .sequence_length = 257, .heads = 4, .kv_heads = 2, .head_dim = 64}, 2500896},
      {{.sequences = 2, .sequence_length = 31, .heads = 4, .kv_heads = 2, .head_dim = 128}, 259296},
      {{.sequences = 2, .sequence_length = 100, .heads = 4, .kv_heads = 4, .head_dim = 40}, 265600},
      {{.sequences = 3, .sequence_length = 200, .heads = 6, .kv_heads = 3, .head_dim = 8}, 2489152},
  };
  for (const SignalRequests& a : asked) {
    const std::int64_t held = cuda::cudnn_scratch(a.shape, DType::bf16, true);
    EXPECT_GE(held, a.bytes) << name(a.shape, 1);
    EXPECT_LE(held, a.bytes + cuda::cudnn_slack) << name(a.shape, 1);
    EXPECT_EQ(cuda::cudnn_scratch(a.shape, DType::f32, true), 0);
    EXPECT_EQ(cuda::cudnn_scratch(a.shape, DType::f16, false), cuda::cudnn_slack);
  }
}

TEST(CudnnAttention, ScratchIsOursAloneInBuildsWithoutIt) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 100, .heads = 4, .kv_heads = 2, .head_dim = 64};
  const std::int64_t own = round_up(200 * 4, 64) + 200 * 4 * 4;
  EXPECT_EQ(cuda::attention_scratch(shape, DType::f32, true), own);
  const std::int64_t cudnn = cuda::cudnn_scratch(shape, DType::bf16, true);
  EXPECT_EQ(cuda::attention_scratch(shape, DType::bf16, true), cuda::has_cudnn ? std::max(own, cudnn) : own);
}

TEST(CudnnAttention, IsAskedForHalfPrecisionAndAlignedRowsOnly) {
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

TEST(CudnnAttention, EnvironmentChoosesAndWrongValuesAreErrors) {
  EXPECT_EQ(cuda::attention_by(nullptr, true), AttentionBy::either);
  EXPECT_EQ(cuda::attention_by("", false), AttentionBy::either);
  EXPECT_EQ(cuda::attention_by("own", false), AttentionBy::own);
  EXPECT_EQ(cuda::attention_by("cudnn", true), AttentionBy::cudnn);
  EXPECT_THROW(cuda::attention_by("cudnn", false), InputError);
  EXPECT_THROW(cuda::attention_by("flash", true), InputError);
}

}  // namespace
}  // namespace fsdp::device
