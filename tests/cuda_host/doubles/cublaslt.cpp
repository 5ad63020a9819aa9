// SPDX-License-Identifier: Apache-2.0
/// @file
/// A fake cuBLASLt: it decodes attributes and computes products on the host, in column-major order as the library does.
///
/// Rules: "The cuBLASLt API", cublasLtMatmul and cublasLtMatmulAlgoGetHeuristic of CUDA 13.0. An algorithm is valid for
/// the alignments that its preference promised. The workspace must be aligned to 256 bytes.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "cublaslt.hpp"
#include "machine.hpp"

namespace {

using fsdp::message;
using namespace fsdp::testing::cuda_host;

struct Description {
  cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t leading;

  std::uint64_t bytes() const {
    return rows == 0 || columns == 0 ? 0 : ((columns - 1) * static_cast<std::uint64_t>(leading) + rows) * width();
  }
  std::uint64_t width() const { return type == CUDA_R_32F ? 4 : 2; }
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256};  // the library's defaults: the alignment of cudaMalloc
};
/// The contents of a cublasLtMatmulAlgo_t.
struct Algorithm {
  static constexpr std::uint64_t own_mark = 0x7e55e7a;
  std::uint64_t mark = own_mark;
  std::uint64_t workspace = 0;
  std::uint32_t alignments[4] = {};
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class Theirs>
auto& ours(Theirs handle) {
  if constexpr (std::is_same_v<Theirs, cublasLtMatmulDesc_t>)
    return *reinterpret_cast<Description*>(handle);
  else if constexpr (std::is_same_v<Theirs, cublasLtMatrixLayout_t>)
    return *reinterpret_cast<Layout*>(handle);
  else
    return *reinterpret_cast<Preference*>(handle);
}

template <class Ours, class Theirs, class... Values>
cublasStatus_t make(Theirs* handle, Values... values) {
  machine().give(handle, new Ours{values...}, "cuBLASLt's handles");
  return CUBLAS_STATUS_SUCCESS;
}
template <class Ours>
cublasStatus_t destroy(void* handle) {
  machine().take_back<Ours>(handle, "cuBLASLt's handles");
  return CUBLAS_STATUS_SUCCESS;
}

/// Begins a call. Returns an error from it if a test makes this call fail.
#define BEGIN() \
  if (machine().enter(__func__, false) != cudaSuccess) return CUBLAS_STATUS_INTERNAL_ERROR

cublasStatus_t refuse(const std::string& why) {
  machine().problem("cuBLASLt: " + why);
  return CUBLAS_STATUS_INVALID_VALUE;
}

template <class Value>
cublasStatus_t read(Value& value, const void* from, std::size_t bytes) {
  if (bytes != sizeof value) return refuse(message("an attribute of ", bytes, " bytes, not ", sizeof value));
  std::memcpy(&value, from, sizeof value);
  return CUBLAS_STATUS_SUCCESS;
}

float read_element(const std::byte* from, cudaDataType type) {
  std::uint16_t bits = 0;
  float wide = 0;
  std::memcpy(type == CUDA_R_32F ? static_cast<void*>(&wide) : &bits, from, type == CUDA_R_32F ? 4 : 2);
  if (type == CUDA_R_16BF) return static_cast<float>(fsdp::bf16::from_bits(bits));
  return type == CUDA_R_16F ? static_cast<float>(fsdp::f16::from_bits(bits)) : wide;
}
void write_element(std::byte* to, cudaDataType type, float value) {
  const std::uint16_t bits = type == CUDA_R_16BF ? fsdp::bf16(value).bits : fsdp::f16(value).bits;
  std::memcpy(to, type == CUDA_R_32F ? static_cast<const void*>(&value) : &bits, type == CUDA_R_32F ? 4 : 2);
}

struct Matrix {
  std::byte* data;
  Layout layout;
  bool transposed = false;

  std::byte* at(std::uint64_t row, std::uint64_t column) const {
    if (transposed) std::swap(row, column);
    return data + (column * static_cast<std::uint64_t>(layout.leading) + row) * layout.width();
  }
};

/// The elements in column-major order.
std::vector<float> values_of(const Matrix& matrix, std::uint64_t rows, std::uint64_t columns) {
  std::vector<float> values;
  values.reserve(rows * columns);
  for (std::uint64_t j = 0; j < columns; ++j)
    for (std::uint64_t i = 0; i < rows; ++i) values.push_back(read_element(matrix.at(i, j), matrix.layout.type));
  return values;
}

/// sum += column * factor; nearly all the time of a product is spent here.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void add_scaled(const float* column, float factor, std::uint64_t rows, float* sum) {
  for (std::uint64_t i = 0; i < rows; ++i) sum[i] += column[i] * factor;
}

/// sum = scale * left * right + before * old. Each element is summed in order of k; a whole column is updated at a
/// time.
void multiply(const Matrix& left, const Matrix& right, std::uint64_t inner, float scale, float before,
              const Matrix& old, const Matrix& sum) {
  const std::uint64_t rows = sum.layout.rows;
  const std::vector<float> from = values_of(left, rows, inner);
  std::vector<float> column(rows);
  for (std::uint64_t j = 0; j < sum.layout.columns; ++j) {
    std::fill(column.begin(), column.end(), 0.0f);
    for (std::uint64_t l = 0; l < inner; ++l)
      add_scaled(from.data() + l * rows, read_element(right.at(l, j), right.layout.type), rows, column.data());
    for (std::uint64_t i = 0; i < rows; ++i) {
      // C is not read if beta is 0: it may be NaN.
      const float kept = before == 0 ? 0 : before * read_element(old.at(i, j), sum.layout.type);
      write_element(sum.at(i, j), sum.layout.type, scale * column[i] + kept);
    }
  }
}

/// Returns why the shapes are inconsistent; empty if they are consistent.
std::string mismatch(const Description& description, const Layout& a, const Layout& b, const Layout& d) {
  const bool ta = description.first == CUBLAS_OP_T, tb = description.second == CUBLAS_OP_T;
  const std::uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  if ((tb ? b.columns : b.rows) != k) return "the operands' inner sizes differ";
  if (d.rows != m || d.columns != (tb ? b.rows : b.columns)) return "the result has other sizes than the product";
  for (const Layout* layout : {&a, &b, &d})
    if (layout->leading < static_cast<std::int64_t>(layout->rows)) return "a leading dimension is less than the rows";
  if (a.type != b.type) return "operands of two types";
  if (d.type != a.type && d.type != CUDA_R_32F) return "a result of this type";
  return "";
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
                                                 : "an error of the double";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  BEGIN();
  return make<int>(handle, 1);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle); }

#undef cublasLtMatmulDescCreate
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  BEGIN();
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return refuse("a product not in float");
  return make<Description>(made);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) { return destroy<Description>(handle); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  BEGIN();
  Description& description = ours(handle);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return read(description.first, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) return read(description.second, value, bytes);
  return refuse(message("attribute ", static_cast<int>(attribute), " of a product, which the double does not know"));
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  BEGIN();
  return make<Layout>(made, type, rows, columns, leading);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) { return destroy<Layout>(handle); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  BEGIN();
  return make<Preference>(made);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  return destroy<Preference>(handle);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  BEGIN();
  Preference& preference = ours(handle);
  std::uint32_t schemes = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return read(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return read(preference.alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return read(preference.alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return read(preference.alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return read(preference.alignments[3], value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return read(schemes, value, bytes);
    default: return refuse("a preference that the double does not know");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wanted, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  BEGIN();
  *found = 0;
  if (most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (std::string why = mismatch(ours(description), ours(a), ours(b), ours(d)); !why.empty()) return refuse(why);
  if (ours(c).rows != ours(d).rows || ours(c).columns != ours(d).columns) return refuse("C is not of D's sizes");
  const Preference& preference = ours(wanted);
  const Algorithm algorithm{.workspace = std::min<std::uint64_t>(preference.workspace, 1 << 16),
                            .alignments = {preference.alignments[0], preference.alignments[1], preference.alignments[2],
                                           preference.alignments[3]}};
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = HeuristicState::next;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* chosen, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  BEGIN();
  Algorithm algorithm{};
  std::memcpy(static_cast<void*>(&algorithm), chosen, sizeof algorithm);
  if (algorithm.mark != Algorithm::own_mark) return refuse("an algorithm that no heuristic gave");
  const Description& product = ours(description);
  const Layout &first = ours(a_layout), &second = ours(b_layout), &result = ours(d_layout);
  if (std::string why = mismatch(product, first, second, result); !why.empty()) return refuse(why);
  const void* const addresses[] = {a, b, c, d};
  const std::uint64_t bytes[] = {first.bytes(), second.bytes(), ours(c_layout).bytes(), result.bytes()};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<std::uintptr_t>(addresses[i]) % algorithm.alignments[i] != 0)
      return refuse(message("matrix ", "ABCD"[i], " is not aligned as the algorithm was promised"));
    if (!machine().is_allocated(addresses[i], bytes[i]))
      return refuse(message("matrix ", "ABCD"[i], " leaves device memory"));
  }
  if (workspace_bytes < algorithm.workspace) return refuse("less workspace than the algorithm needs");
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)
    return refuse("the workspace is not aligned to 256 bytes");
  if (!machine().is_allocated(workspace, workspace_bytes)) return refuse("the workspace leaves device memory");

  float scale = 0, before = 0;
  std::memcpy(&scale, alpha, sizeof scale);
  std::memcpy(&before, beta, sizeof before);
  const auto data = [](const void* from) { return static_cast<std::byte*>(const_cast<void*>(from)); };
  const Matrix left{data(a), first, product.first == CUBLAS_OP_T},
      right{data(b), second, product.second == CUBLAS_OP_T};
  const Matrix old{data(c), ours(c_layout)}, sum{data(d), result};
  const std::uint64_t inner = left.transposed ? first.rows : first.columns;
  const cudaError_t submitted = machine().submit(stream, [=] {
    std::memset(workspace, 0xff, algorithm.workspace);  // for example partial sums
    multiply(left, right, inner, scale, before, old, sum);
  });
  return submitted == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
