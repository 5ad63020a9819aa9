// SPDX-License-Identifier: Apache-2.0
/// @file
/// Element types of tensors: run-time tag, size and name. To add a type, add an enumerator and a row in each function.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/bf16.hpp>
#include <tessera/fsdp/core/f16.hpp>

namespace fsdp {

/// Element types of buffers, files and messages.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8 };

/// Returns the tag of element type T.
template <class T>
consteval DType dtype_of() {
  using Element = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Element, double>) return DType::f64;
  if constexpr (std::is_same_v<Element, float>) return DType::f32;
  if constexpr (std::is_same_v<Element, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<Element, f16>) return DType::f16;
  if constexpr (std::is_same_v<Element, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<Element, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<Element, std::uint8_t>) return DType::u8;
}

/// An element type that tensors support.
template <class T>
concept Element =
    std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, f16> ||
    std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::uint8_t>;

/// An element type that matmuls and activations support.
template <class T>
concept Real = std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

/// Returns the size of one element in bytes.
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

/// Returns the name of the type in messages, such as "bf16".
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  return "?";
}

}  // namespace fsdp
