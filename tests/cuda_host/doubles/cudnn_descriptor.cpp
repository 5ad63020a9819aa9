// SPDX-License-Identifier: Apache-2.0
#include "cudnn_descriptor.hpp"

#include <algorithm>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::testing::cuda_host {
namespace {

/// The attributes of an operation's descriptor that refer to tensors: the operands, then the result.
std::vector<cudnnBackendAttributeName_t> names_of_tensors(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
              CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
    default: return {};
  }
}

}  // namespace

const std::map<cudnnBackendDescriptorType_t, std::vector<Rule>>& rules() {
  constexpr bool needed = true;
  static const std::map<cudnnBackendDescriptorType_t, std::vector<Rule>> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, needed},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, needed, 8},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, needed, 8},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, needed},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, needed},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN},
        {CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE}}},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, needed},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, needed},
        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64}}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT},
        {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT}}},
      {CUDNN_BACKEND_MATMUL_DESCRIPTOR,
       {{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, needed},
        {CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE}}},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed}}},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
       {{CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, needed},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, needed},
        {CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN}}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed}}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed}}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed, 64},
        {CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, CUDNN_TYPE_BOOLEAN}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, needed},
        {CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32}}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, {}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {}},
      {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, {}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, needed}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, needed, 64},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, needed, 64},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, needed}}},
  };
  return all;
}

std::size_t width(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;  // float and enumerations
  }
}

bool is_operation(cudnnBackendDescriptorType_t type) { return !names_of_tensors(type).empty(); }

std::string decode(const Descriptor& from, CudnnTensor& to) {
  const auto dims = from.list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = from.list<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (dims.size() != to.dims.size() || strides.size() != dims.size()) return "a tensor that is not of four dimensions";
  std::copy(dims.begin(), dims.end(), to.dims.begin());
  std::copy(strides.begin(), strides.end(), to.strides.begin());
  to.uid = from.get<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  to.type = from.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  to.alignment = from.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  to.is_virtual = from.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  to.is_by_value = from.get<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  for (std::size_t d = 0; d < to.rank; ++d)
    if (to.dims[d] < 1 || to.strides[d] < 1) return message("tensor ", to.uid, " has a dimension or stride below 1");
  if (to.alignment < to.width() || (to.alignment & (to.alignment - 1)) != 0)
    return message("tensor ", to.uid, " is aligned to ", to.alignment, " bytes");
  if (to.is_by_value && (to.is_virtual || to.count() != 1 || to.type != CUDNN_DATA_FLOAT))
    return message("tensor ", to.uid, " by value is not one float");
  for (const auto type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_INT32, CUDNN_DATA_BOOLEAN})
    if (to.type == type) return "";
  return message("tensor ", to.uid, " is of a type that the double does not know");
}

std::string add(CudnnGraph& graph, const Descriptor& from) {
  using Kind = CudnnOperation::Kind;
  CudnnOperation operation;
  if (from.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    const Descriptor& kind = *from.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    operation.mode = kind.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    operation.axis = kind.get<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
    for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2})
      if (from.get(name, 1.0f) != 1.0f) return "a pointwise operation with a factor, which the double does not know";
  } else if (from.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    const Descriptor& kind = *from.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    operation.kind = Kind::reduction;
    operation.mode = kind.get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  } else {
    operation.kind = from.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ? Kind::matmul : Kind::reshape;
  }
  for (const auto name : names_of_tensors(from.type)) {
    if (!from.has(name)) continue;
    CudnnTensor tensor;
    if (std::string problem = decode(*from.part(name), tensor); !problem.empty()) return problem;
    if (std::string problem = graph.add(tensor); !problem.empty()) return problem;
    operation.inputs.push_back(tensor.uid);
  }
  operation.output = operation.inputs.back();
  operation.inputs.pop_back();
  return graph.add(operation);
}

}  // namespace fsdp::testing::cuda_host
