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

/// The computations of one micro-batch, in the order in which every rank makes them: skip connections, recurrence and
/// tied weights use a unit several times, or not in the order of declaration. Passes that do not train skip the
/// backward computations.
struct Order {
  std::vector<sharding::Computation> list;
  /// Units whose backward makes no gradients of their own weights: a discriminator in the generator's step. Groups that
  /// an order makes no gradient of are not stepped after its pass.
  std::vector<int> without_gradients = {};
};

/// Returns forward 0 .. units - 1, then backward units - 1 .. 0.
Order chain(int units);
/// Returns forward in the order of `uses`, then backward in reverse; and the same with unit `head` in the middle, whose
/// forward and backward are one computation.
/// @{
Order mirrored(std::span<const int> uses);
Order mirrored(std::initializer_list<int> uses);
Order mirrored(std::span<const int> uses, int head);
Order mirrored(std::initializer_list<int> uses, int head);
/// @}

/// What a module is used for. One that generates gathers all weights once and keeps them.
enum class Purpose : std::uint8_t { train, evaluate, generate };

/// Passes that units are planned for; no other passes run on them.
struct PassPlan {
  UnitOptions unit_options = {};
  /// Empty: a model's order, whose last unit makes the loss (sharding::Problem::order). Orders are chosen by index.
  std::vector<Order> orders = {};
  int micro_batches = 1;
  /// Passes may have fewer micro-batches. Numbers below 16 are planned, and of larger ones the half, its half and so
  /// on; the others when a pass first has so many.
  bool fewer = false;
  bool repeats = false;        ///< a micro-batch may be computed again without its reductions (Reductions::left_out)
  bool fixed_slots = false;    ///< see sharding::Problem
  int ranks_per_sequence = 1;  ///< consecutive ranks that share each micro-batch (SequenceGroup)
  Purpose purpose = Purpose::train;
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(fsdp::Order)
