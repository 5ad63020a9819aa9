// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operations of cuDNN's graphs that attention is made of, done on the host.
///
/// Rules: "cuDNN Backend API", the operation descriptors; "cuDNN Graph API", matmul, pointwise, reduction and reshape.
/// A dimension of one operand that is a divisor of the result's is shared by neighbours, as heads of attention share
/// keys.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::testing::cuda_host {

struct CudnnTensor {
  static constexpr std::size_t rank = 4;  ///< that of attention's tensors

  std::int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<std::int64_t, rank> dims = {}, strides = {};
  std::int64_t alignment = 0;
  bool is_virtual = false;   ///< has no address
  bool is_by_value = false;  ///< one number, read from the host as the graph is queued

  std::size_t count() const { return static_cast<std::size_t>(dims[0] * dims[1] * dims[2] * dims[3]); }
  std::int64_t width() const;
  /// From the first element to behind the last.
  std::int64_t bytes() const;
  friend bool operator==(const CudnnTensor&, const CudnnTensor&) = default;
};

struct CudnnOperation {
  enum class Kind { matmul, pointwise, reduction, reshape };
  Kind kind = Kind::pointwise;
  int mode = 0;                      ///< cudnnPointwiseMode_t or cudnnReduceTensorOp_t
  std::int64_t axis = 0;             ///< of CUDNN_POINTWISE_GEN_INDEX
  std::vector<std::int64_t> inputs;  ///< uids
  std::int64_t output = 0;
};

/// What cudnnBackendExecute was given.
using CudnnAddresses = std::map<std::int64_t, std::byte*>;

class CudnnGraph {
 public:
  /// Adds what an operation names. Returns why that is wrong; empty where it is right.
  std::string add(const CudnnTensor& tensor);
  std::string add(const CudnnOperation& operation);
  /// Sorts the operations; why they are no graph, or empty.
  std::string finish();

  const std::map<std::int64_t, CudnnTensor>& tensors() const { return tensors_; }
  /// What the fused engine keeps beside the tensors: of a product that no address is given to, in whole tiles.
  std::int64_t workspace() const;
  /// Whether blocks of keys add to one tensor, each as it is done: the sums' bits depend on timing.
  bool adds_in_any_order() const;

  /// Does all operations. `scalars` are the tensors by value.
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
