// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/dtype.hpp>

namespace fsdp {
namespace {

/// Checks the tag, size and name of T and of const T.
template <class T>
consteval bool agrees(DType dtype, std::string_view name) {
  return Element<T> && dtype_of<T>() == dtype && dtype_of<const T>() == dtype && size_of(dtype) == sizeof(T) &&
         name_of(dtype) == name;
}

static_assert(agrees<double>(DType::f64, "f64") && agrees<float>(DType::f32, "f32") &&
              agrees<bf16>(DType::bf16, "bf16"));
static_assert(agrees<std::int64_t>(DType::i64, "i64") && agrees<std::int32_t>(DType::i32, "i32"));
static_assert(agrees<std::uint8_t>(DType::u8, "u8"));

static_assert(Real<float> && Real<bf16>);
static_assert(!Real<double> && !Real<std::int32_t> && !Real<const float>);
static_assert(!Element<std::int16_t> && !Element<bool> && !Element<const float>);

}  // namespace
}  // namespace fsdp
