// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operations of cuDNN's graphs that attention consists of, computed on the host.
///
/// Rules: "cuDNN Backend API", the operation descriptors; "cuDNN Graph API", matmul, pointwise, reduction and reshape.
/// If a dimension of an operand divides that of the result, neighbours share its elements, as query heads share keys.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp::testing::cuda_host {

struct CudnnTensor {
  static constexpr std::size_t rank = 4;  ///< rank of attention's tensors

  std::int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<std::int64_t, rank> dims = {}, strides = {};
  std::int64_t alignment = 0;
  bool is_virtual = false;   ///< an intermediate tensor without an address
  bool is_by_value = false;  ///< one number, read from the host when the graph is enqueued

  std::size_t count() const { return static_cast<std::size_t>(dims[0] * dims[1] * dims[2] * dims[3]); }
  std::int64_t width() const;
  /// Bytes from the first element to the end of the last one.
  std::int64_t bytes() const;
  friend bool operator==(const CudnnTensor&, const CudnnTensor&) = default;
};

struct CudnnOperation {
  enum class Kind { matmul, pointwise, reduction, reshape };
  Kind kind = Kind::pointwise;
  int mode = 0;                      ///< cudnnPointwiseMode_t or cudnnReduceTensorOp_t
  std::int64_t axis = 0;             ///< for CUDNN_POINTWISE_GEN_INDEX
  std::vector<std::int64_t> inputs;  ///< unique IDs of tensors
  std::int64_t output = 0;
};

/// The addresses passed to cudnnBackendExecute, by unique ID.
using CudnnAddresses = std::map<std::int64_t, std::byte*>;

class CudnnGraph {
 public:
  /// Adds a tensor that an operation refers to. Returns why it is invalid; empty if it is valid.
  std::string add(const CudnnTensor& tensor);
  std::string add(const CudnnOperation& operation);
  /// Sorts the operations. Returns why they do not form a graph; empty if they do.
  std::string finish();

  const std::map<std::int64_t, CudnnTensor>& tensors() const { return tensors_; }
  /// Bytes that the fused engine stores in addition to the tensors, for products without an address, in whole tiles.
  std::int64_t workspace() const;
  /// Whether blocks of keys add to one tensor in order of completion, so that results are not bit-identical.
  bool adds_in_any_order() const;

  /// Computes all operations. `scalars` has the tensors by value.
  void run(const CudnnAddresses& addresses, const std::map<std::int64_t, float>& scalars) const;

 private:
  const CudnnTensor& tensor(std::int64_t uid) const { return tensors_.at(uid); }
  bool is_made(std::int64_t uid) const;
  bool is_added_in_any_order(const CudnnOperation& operation) const;
  std::string shapes_problem(const CudnnOperation& operation) const;

  std::map<std::int64_t, CudnnTensor> tensors_;
  std::vector<CudnnOperation> operations_;
};

}  // namespace fsdp::testing::cuda_host
