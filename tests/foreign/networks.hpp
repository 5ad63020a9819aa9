// SPDX-License-Identifier: Apache-2.0
/// @file
/// The networks that the tests in this folder train.
#pragma once

#include <string>
#include <vector>

#include <tessera/fsdp/sharded.hpp>

#include "any_pass.hpp"
#include "plain_loop.hpp"

namespace fsdp::foreign {

/// A network: its declaration, and functions that run forward and backward of piece `piece` of a step of `pieces`
/// pieces and return the piece's contribution to the mean loss.
struct Network {
  std::string name;
  std::vector<Unit> units;
  Order order;
  UnitOptions unit_options = {};
  double (*compute)(AnyPass& pass, int step, int piece, int pieces) = nullptr;
  double (*compute_in_double)(plain::Loop<double>::Pass& pass, int step, int piece, int pieces) = nullptr;
};

/// examples/14_eigen_unet: two skip connections, batch norm, units that are declared in a different order than they are
/// used.
Network unet_network();
/// A table that two units share, a cell and a reader that are used alternately four times, frozen weights, and a unit
/// that is in no order because it is never gathered.
Network tied_network();
/// Both networks.
std::vector<Network> networks();

/// Units of `tied_network`.
enum Tied : int { reader, cell, table, scores, scale, unused };

}  // namespace fsdp::foreign
