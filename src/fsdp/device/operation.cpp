// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts the costs of operations, and prints operations as text.
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

void Counters::add(const Cost& cost) {
  matmul_flops += cost.matmul_flops;
  attention_flops += cost.attention_flops;
  elementwise_bytes += cost.bytes;
  if (matmuls != nullptr && cost.matmul.has_value()) matmuls->push_back(*cost.matmul);
}

namespace detail {

void name_operation(const LogicError& error, const std::string& operation) {
  throw LogicError(message(error.what(), "; enqueued as ", operation));
}

std::string operation_text(std::string_view name, std::span<const TensorText> tensors) {
  std::string read, written;
  for (const TensorText& tensor : tensors) {
    std::string& list = tensor.written ? written : read;
    if (!list.empty()) list += ", ";
    list += tensor.dtype.has_value() ? name_of(*tensor.dtype) : message(tensor.element_bytes, "-byte records");
    list += " " + shape_text(tensor.shape);
  }
  return message(name, '(', read, read.empty() ? "" : " ", "-> ", written, ')');
}

}  // namespace detail
}  // namespace fsdp::device
