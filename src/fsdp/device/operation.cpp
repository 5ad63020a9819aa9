// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts the costs of operations, and prints operations as text.
#include <tessera/fsdp/device/operation.hpp>

#include <sstream>

namespace fsdp::device {

void Counters::add(const Cost& cost) {
  matmul_flops += cost.matmul_flops;
  attention_flops += cost.attention_flops;
  elementwise_bytes += cost.bytes;
  if (matmuls != nullptr && cost.matmul.has_value()) matmuls->push_back(*cost.matmul);
}

namespace detail {
namespace {

void write(std::ostream& out, const TensorText& tensor) {
  if (tensor.dtype.has_value())
    out << name_of(*tensor.dtype);
  else
    out << tensor.element_bytes << "-byte records";
  out << " [";
  for (std::int64_t axis = 0; axis < tensor.shape.rank; ++axis) out << (axis > 0 ? ", " : "") << tensor.shape[axis];
  out << ']';
}

/// Prints the tensors that are written, or the tensors that are only read. Returns whether it printed any.
bool write_some(std::ostream& out, std::span<const TensorText> tensors, bool written) {
  bool any = false;
  for (const TensorText& tensor : tensors) {
    if (tensor.written != written) continue;
    if (any) out << ", ";
    write(out, tensor);
    any = true;
  }
  return any;
}

}  // namespace

void name_operation(const LogicError& error, const std::string& operation) {
  throw LogicError(message(error.what(), "; enqueued as ", operation));
}

std::string operation_text(std::string_view name, std::span<const TensorText> tensors) {
  std::ostringstream out;
  out << name << '(';
  if (write_some(out, tensors, false)) out << ' ';
  out << "-> ";
  write_some(out, tensors, true);
  out << ')';
  return out.str();
}

}  // namespace detail
}  // namespace fsdp::device
