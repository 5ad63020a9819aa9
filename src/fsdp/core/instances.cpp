// SPDX-License-Identifier: Apache-2.0
// Errors, views of the usual element types, and lists of this folder's structs, so that no other object need have them.
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>

template class fsdp::Tensor<float>;
template class fsdp::Tensor<const float>;
template class fsdp::Tensor<fsdp::bf16>;
template class fsdp::Tensor<const fsdp::bf16>;
template class fsdp::Tensor<double>;
template class fsdp::Tensor<const double>;
template class std::vector<fsdp::bf16>;
template class std::vector<fsdp::Shape>;
template class std::vector<fsdp::Tensor<float>>;
template class std::vector<fsdp::Tensor<fsdp::bf16>>;
template class std::vector<fsdp::Parameter>;
template class std::vector<fsdp::Field>;

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

}  // namespace fsdp
