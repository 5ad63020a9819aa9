// SPDX-License-Identifier: Apache-2.0
/// @file
/// Orders of computations, and the passes that units are planned for.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

namespace fsdp {

/// The computations of one micro-batch, in the order in which every rank performs them. With skip connections,
/// recurrence or tied weights, a unit is used several times, or not in the order of declaration. Passes other than
/// training skip the backward computations.
struct Order {
  std::vector<sharding::Computation> list;
  /// Units whose backward computes no weight gradients, such as a discriminator in the generator's step. Groups for
  /// which an order computes no gradient are not stepped after its pass.
  std::vector<int> without_gradients = {};
};

/// Returns forward 0 .. units - 1, then backward units - 1 .. 0.
Order chain(int units);
/// Returns forward in the order of `uses`, then backward in reverse order; with `head`, that unit's forward and
/// backward come in between as one computation.
/// @{
Order mirrored(std::span<const int> uses);
Order mirrored(std::initializer_list<int> uses);
Order mirrored(std::span<const int> uses, int head);
Order mirrored(std::initializer_list<int> uses, int head);
/// @}

/// The use of a module. A module that generates gathers all weights once and keeps them.
enum class Purpose : std::uint8_t { train, evaluate, generate };

/// Passes that units are planned for; no other passes run on them.
struct PassPlan {
  UnitOptions unit_options = {};
  /// The orders, which passes select by index. If empty: the default order, in which the last unit computes the loss
  /// (sharding::Problem::order).
  std::vector<Order> orders = {};
  int micro_batches = 1;
  /// Whether passes may have fewer micro-batches. All numbers below 16 are planned in advance, and of the larger
  /// numbers a half, a quarter and so on of `micro_batches`; any other number is planned when a pass first uses it.
  bool fewer = false;
  bool repeats = false;        ///< a micro-batch may be computed again without its reductions (Reductions::left_out)
  bool fixed_slots = false;    ///< see sharding::Problem
  int ranks_per_sequence = 1;  ///< consecutive ranks that share each micro-batch (SequenceGroup)
  Purpose purpose = Purpose::train;
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(fsdp::Order)
