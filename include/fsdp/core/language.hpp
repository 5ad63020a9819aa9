// SPDX-License-Identifier: Apache-2.0
/// @file
/// What Tessera's headers need of the compiler. Headers that programs include have this one before all others, so that
/// the sentence comes before errors that follow from it.
#pragma once

#if __cplusplus < 202002L
#error "fsdp: Tessera needs C++20; compile this file with -std=c++20 or later"
#endif
#if !defined(__cpp_exceptions)
#error "fsdp: Tessera reports errors by exceptions; compile this file without -fno-exceptions"
#endif
