// SPDX-License-Identifier: Apache-2.0
/// @file
/// FSDP_LIST(T): std::vector<T> of one of our types is compiled into the library, and not in each object that uses it.
///
/// Only with the same version of libstdc++ as the library, which CMake passes as TESSERA_LIBSTDCXX: other versions have
/// other members. Not with checked containers, which -O0 would not check then.
#pragma once

#include <vector>

#if defined(TESSERA_LIBSTDCXX) && defined(_GLIBCXX_RELEASE) && !defined(_GLIBCXX_ASSERTIONS) && !defined(_GLIBCXX_DEBUG)
#if TESSERA_LIBSTDCXX == _GLIBCXX_RELEASE
#define FSDP_LIST(...) extern template class std::vector<__VA_ARGS__>;
#endif
#endif
#ifndef FSDP_LIST
/// See the head of this file.
#define FSDP_LIST(...)
#endif
