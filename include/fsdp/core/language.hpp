// SPDX-License-Identifier: Apache-2.0
/// @file
/// The compiler features that Tessera's headers require. Headers that programs include start with this one, so that its
/// message comes before the errors that follow from a missing feature.
#pragma once

#if __cplusplus < 202002L
#error "fsdp: Tessera needs C++20; compile this file with -std=c++20 or later"
#endif
#if !defined(__cpp_exceptions)
#error "fsdp: Tessera reports errors by exceptions; compile this file without -fno-exceptions"
#endif
