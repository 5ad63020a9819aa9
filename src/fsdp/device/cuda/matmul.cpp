// SPDX-License-Identifier: Apache-2.0
/// @file
/// Matrix products by cuBLASLt: sums in float, TF32 off. cuBLASLt's heuristic chooses one algorithm per problem, on
/// first use.
#include <cublasLt.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>

#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/device/compute/cuda.hpp>

#include "cache.hpp"
#include "runtime.hpp"
#include "scratch.hpp"

namespace fsdp::device {
namespace {

void require_success(cublasStatus_t status, const char* what) {
  require<Error>(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt, ", what, ": ", cublasLtGetStatusString(status));
}

cudaDataType_t library_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: throw LogicError(message("matmul: element type ", name_of(dtype), "; f32, bf16 and f16 exist"));
  }
}

template <class Handle, cublasStatus_t (*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Library = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// Returns the largest power of two, at most 16, that divides an address. No load of a kernel is wider, and the
/// addresses of a tensor at rest and in a slot differ in larger powers: a larger limit would let the algorithm, and so
/// the results of strategies with pieces, depend on the number of ranks.
std::uint32_t alignment_of(const void* data) {
  std::uint32_t bytes = 16;
  while (reinterpret_cast<std::uintptr_t>(data) % bytes != 0) bytes /= 2;
  return bytes;
}

/// The cache key of an algorithm: everything that the choice of algorithm depends on.
struct Key : MatmulRecord {
  std::int64_t lda, ldb, ldc;
  std::uint32_t a_alignment, b_alignment, c_alignment;
  auto operator<=>(const Key&) const = default;
};

struct Plan {
  Description description;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm;
};

void set(Description& description, cublasLtMatmulDescAttributes_t attribute, cublasOperation_t operation) {
  require_success(cublasLtMatmulDescSetAttribute(description.get(), attribute, &operation, sizeof operation),
                  "describing a product");
}
template <class Value>
void set(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  require_success(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
                  "describing a preference");
}
/// Describes a row-major matrix to cuBLASLt, which is column-major and so sees its transpose.
void make(Layout& layout, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride) {
  require_success(cublasLtMatrixLayoutCreate(layout.out(), library_type(dtype), static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), row_stride),
                  "describing a matrix");
}

/// Plans c^T = b^T a^T: with swapped operands, row-major matrices are in the layout that cuBLASLt expects.
std::unique_ptr<Plan> make_plan(cublasLtHandle_t library, const Key& key) {
  auto plan = std::make_unique<Plan>();
  require_success(cublasLtMatmulDescCreate(plan->description.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "describing a product");
  set(plan->description, CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan->description, CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  make(plan->first, key.operands, key.b_transposed ? key.n : key.k, key.b_transposed ? key.k : key.n, key.ldb);
  make(plan->second, key.operands, key.a_transposed ? key.k : key.m, key.a_transposed ? key.m : key.k, key.lda);
  make(plan->result, key.result, key.m, key.n, key.ldc);

  Preference preference;
  require_success(cublasLtMatmulPreferenceCreate(preference.out()), "describing a preference");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(cuda::matmul_workspace));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  // Split-K parts are added in float, never in the result's type.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));

  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library, plan->description.get(), plan->first.get(), plan->second.get(),
                                     plan->result.get(), plan->result.get(), preference.get(), 1, &best, &found);
  const bool usable = status == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
  require<Error>(usable, "cuBLASLt has no algorithm for [", key.m, ", ", key.k, "] x [", key.k, ", ", key.n, "] of ",
                 name_of(key.operands), " to ", name_of(key.result), ", row strides ", key.lda, " ", key.ldb, " ",
                 key.ldc, ", addresses at multiples of ", key.a_alignment, " ", key.b_alignment, " ", key.c_alignment,
                 ": ", cublasLtGetStatusString(status == CUBLAS_STATUS_SUCCESS ? best.state : status));
  plan->algorithm = best.algo;
  return plan;
}

template <class T>
std::int64_t stride_of(const Tensor<T>& matrix) {
  return matrix.rows() == 1 ? matrix.columns() : matrix.row_stride();  // the stride of a single row has no meaning
}

/// Returns the aligned part of the scratch, matmul_workspace bytes, that cuBLASLt may use.
std::byte* aligned_workspace(Scratch scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data);
  const auto begin =
      static_cast<std::uintptr_t>(round_up(static_cast<std::int64_t>(address), cuda::workspace_alignment));
  return reinterpret_cast<std::byte*>(begin);
}

bool wants_plain(bool asked) { return asked || environment("TESSERA_CUDA_PLAIN") == "1"; }

}  // namespace

struct cuda::MatmulPlans {
  Library library;
  std::map<Key, std::unique_ptr<Plan>> plans;
};

Cuda::Stream::Stream(Arena& arena, int, bool plain)
    : Queue("compute"), arena_(&arena), plain_(wants_plain(plain)), cache_(std::make_unique<Cache>()) {
  cache_->matmuls = std::make_shared<cuda::MatmulPlans>();
  cache_->attention_by = cuda::attention_by(std::getenv("TESSERA_CUDA_ATTENTION"));
  require_success(cublasLtCreate(cache_->matmuls->library.out()), "starting");
}
Cuda::Stream::Stream(Stream&&) noexcept = default;
Cuda::Stream::~Stream() = default;

template <ComputedBy<Cuda> A, ComputedBy<Cuda> C>
void run(Cuda::Stream& stream, const Matmul<A, C>& op, Scratch workspace) {
  if (workspace.bytes == 0) {  // an empty sum is 0
    if (op.write == Write::overwrite) run(stream, Fill<C>{.y = op.c});
    return;
  }
  const Tensor<const A>&a = op.a.tensor, &b = op.b.tensor;
  const Key key{op.record(),
                stride_of(a),
                stride_of(b),
                stride_of(op.c),
                alignment_of(a.data()),
                alignment_of(b.data()),
                alignment_of(op.c.data())};
  cuda::MatmulPlans& known = *stream.cache().matmuls;
  std::unique_ptr<Plan>& plan = known.plans[key];
  if (!plan) plan = make_plan(known.library.get(), key);
  const float alpha = 1, beta = key.accumulate ? 1 : 0;
  require_success(
      cublasLtMatmul(known.library.get(), plan->description.get(), &alpha, b.data(), plan->first.get(), a.data(),
                     plan->second.get(), &beta, op.c.data(), plan->result.get(), op.c.data(), plan->result.get(),
                     &plan->algorithm, aligned_workspace(workspace), static_cast<std::size_t>(cuda::matmul_workspace),
                     static_cast<cudaStream_t>(stream.native())),
      "queueing a product");
}

template void run(Cuda::Stream&, const Matmul<float, float>&, Scratch);
template void run(Cuda::Stream&, const Matmul<bf16, bf16>&, Scratch);
template void run(Cuda::Stream&, const Matmul<bf16, float>&, Scratch);
template void run(Cuda::Stream&, const Matmul<f16, f16>&, Scratch);
template void run(Cuda::Stream&, const Matmul<f16, float>&, Scratch);

}  // namespace fsdp::device
