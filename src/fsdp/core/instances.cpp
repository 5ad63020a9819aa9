// SPDX-License-Identifier: Apache-2.0
// Strings and lists of the usual element types and of this folder's structs, views, errors, texts of shapes and the
// check of names, so that no other object need have them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/core/tensor_pattern.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "utf8.hpp"

FSDP_STANDARD_LISTS(template)
FSDP_TENSORS(template)
template class std::vector<fsdp::bf16>;
template class std::vector<fsdp::Shape>;
template class std::vector<fsdp::Tensor<float>>;
template class std::vector<std::vector<fsdp::Tensor<float>>>;
template class std::vector<fsdp::Tensor<fsdp::bf16>>;
template class std::vector<fsdp::Parameter>;
template class std::vector<fsdp::Field>;
template class std::vector<fsdp::ConfigValue>;
template class std::vector<fsdp::PolicyParts::Part>;
template class std::vector<fsdp::TensorPattern>;

namespace fsdp {

Error::~Error() = default;
InputError::~InputError() = default;
DivergedError::~DivergedError() = default;
CorruptionError::~CorruptionError() = default;
LogicError::~LogicError() = default;
MemoryError::~MemoryError() = default;

void Shape::throw_too_many(std::size_t given) {
  throw InputError(message("shape: ", given, " extents are given, and a shape holds 4; flatten the last ones, ",
                           "as [n, c, d * h * w]"));
}

std::string shape_text(std::span<const std::int64_t> extents) {
  std::string text = "[";
  for (std::size_t i = 0; i < extents.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(extents[i]);
  return text + "]";
}

std::string shape_text(const Shape& shape) {
  return shape_text(std::span(shape.extents.data(), static_cast<std::size_t>(shape.rank)));
}

void require_tensor_name(std::string_view name, std::string_view where) {
  constexpr std::size_t most_bytes = 512;
  const bool control = std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
  require<InputError>(!name.empty() && name.size() <= most_bytes && !control && is_utf8(name), where,
                      ": a tensor's name must have 1 to ", most_bytes,
                      " bytes of UTF-8 and no control characters; found \"", shortened(name), "\"");
  require<InputError>(name != "__metadata__", where, ": no tensor can be called \"", name,
                      "\", which is the key of a safetensors file's metadata; take another name");
}

}  // namespace fsdp
