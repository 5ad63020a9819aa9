// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists are compiled into the library, and not in each object that uses them: with FSDP_LIST(T) the std::vector<T> of
/// one of our types, next to that type, and here strings and lists of the standard library's types.
///
/// Only with the same version of libstdc++ as the library, which CMake passes as TESSERA_LIBSTDCXX: other versions have
/// other members. Not with checked containers, which -O0 would not check then. Strings and lists of the standard
/// library's types only in our own targets, for which CMake defines TESSERA_OWN_TARGET: in another version of C++
/// std::string has other members. libstdc++ itself does the same with std::string before C++20.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The strings and lists of the standard library's types; `how` is `extern template` or `template`.
#define FSDP_STANDARD_LISTS(how)             \
  how class std::basic_string<char>;         \
  how class std::vector<float>;              \
  how class std::vector<double>;             \
  how class std::vector<int>;                \
  how class std::vector<std::int64_t>;       \
  how class std::vector<std::size_t>;        \
  how class std::vector<std::uint8_t>;       \
  how class std::vector<std::string>;        \
  how class std::vector<std::vector<float>>; \
  how class std::vector<std::vector<int>>;   \
  how class std::vector<std::vector<std::int64_t>>;

#if defined(TESSERA_LIBSTDCXX) && defined(_GLIBCXX_RELEASE) && !defined(_GLIBCXX_ASSERTIONS) && !defined(_GLIBCXX_DEBUG)
#if TESSERA_LIBSTDCXX == _GLIBCXX_RELEASE
#define FSDP_LIST(...) extern template class std::vector<__VA_ARGS__>;
#ifdef TESSERA_OWN_TARGET
FSDP_STANDARD_LISTS(extern template)
#endif
#endif
#endif
#ifndef FSDP_LIST
/// See the head of this file.
#define FSDP_LIST(...)
#endif
