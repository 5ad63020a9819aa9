// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares the bytes that a rank took with those that its dry run planned. Contains no tests.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

inline constexpr std::string_view takes_planned_bytes =
    "every rank takes as many bytes of every kind as its dry run planned";

/// Fails for every kind of memory that differs.
inline bool expect_planned_bytes(std::string_view where, std::size_t rank, const device::BytesByKind& taken,
                                 const device::BytesByKind& planned) {
  const std::string rank_there = message(where, ", rank ", rank);
  bool same = true;
  for (std::size_t kind = 0; kind < planned.size(); ++kind)
    same = expect_value(takes_planned_bytes, rank_there, device::memory_kind_names[kind], taken[kind], planned[kind]) &&
           same;
  return same;
}

}  // namespace fsdp::testing
