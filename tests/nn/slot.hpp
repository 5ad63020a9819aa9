// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers for modules under test; their memory is the kit's.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <fsdp/device/cpu.hpp>
#include <fsdp/device/meta.hpp>
#include <fsdp/testing/module_memory.hpp>

#include "reference.hpp"

namespace fsdp::nn::reference {

using fsdp::testing::ModuleFields;
using fsdp::testing::Placing;
using fsdp::testing::shapes_of;
using fsdp::testing::Slot;
using fsdp::testing::TestRank;

/// What T holds of these numbers.
template <class T>
Values rounded(Values values) {
  for (double& value : values) value = static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
  return values;
}

/// Numbers in (center - spread, center + spread) that T can hold.
template <class T>
Values random_values(std::uint64_t seed, std::int64_t size, double spread = 1, double center = 0) {
  Values values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(center + spread * device::reference::number_at(seed, i));
  return rounded<T>(values);
}

/// Weights for these shapes: vectors are norms, near 1, matrices keep the size of what passes through them.
template <class T>
ValueList random_weights(const std::vector<Shape>& shapes) {
  ValueList list;
  for (const Shape& shape : shapes) {
    const bool norm = shape.rank == 1;
    const double spread = norm ? 0.4 : 1.5 / std::sqrt(static_cast<double>(shape[1]));
    list.push_back(random_values<T>(100 + list.size(), shape.numel(), spread, norm ? 1 : 0));
  }
  return list;
}

}  // namespace fsdp::nn::reference
