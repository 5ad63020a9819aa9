// SPDX-License-Identifier: Apache-2.0
/// @file
/// Descriptors of cuDNN's backend API: the attributes of each kind, and the graph that they describe.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_graph.hpp"

namespace fsdp::testing::cuda_host {

struct Descriptor;
using Shared = std::shared_ptr<Descriptor>;

struct Value {
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<Shared> parts;  ///< referenced descriptors, which may be destroyed earlier
};

/// The object behind a cudnnBackendDescriptor_t, shared with descriptors that refer to it.
struct Descriptor {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values = {};
  std::shared_ptr<const CudnnGraph> graph = {};  ///< set for an operation graph and for all descriptors made from one

  bool has(cudnnBackendAttributeName_t name) const { return values.count(name) > 0; }
  template <class T>
  T get(cudnnBackendAttributeName_t name, T otherwise = {}) const {
    if (const auto found = values.find(name); found != values.end())
      std::memcpy(&otherwise, found->second.bytes.data(), sizeof otherwise);
    return otherwise;
  }
  template <class T>
  std::vector<T> list(cudnnBackendAttributeName_t name) const {
    const Value& value = values.at(name);
    std::vector<T> all(static_cast<std::size_t>(value.count));
    std::memcpy(all.data(), value.bytes.data(), value.bytes.size());
    return all;
  }
  const Shared& part(cudnnBackendAttributeName_t name) const { return values.at(name).parts.at(0); }
};

/// The rule for one attribute of a kind of descriptor.
struct Rule {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  bool needed = false;
  std::int64_t most = 1;  ///< maximum number of elements
};
const std::map<cudnnBackendDescriptorType_t, std::vector<Rule>>& rules();
std::size_t width(cudnnBackendAttributeType_t type);

bool is_operation(cudnnBackendDescriptorType_t type);
/// Adds a finalized operation with its tensors. Returns why it is invalid; empty if it is valid.
std::string add(CudnnGraph& graph, const Descriptor& operation);
/// Decodes a tensor's descriptor. Returns why it is invalid; empty if it is valid.
std::string decode(const Descriptor& from, CudnnTensor& to);

}  // namespace fsdp::testing::cuda_host
