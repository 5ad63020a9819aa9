// SPDX-License-Identifier: Apache-2.0
/// @file
/// The networks that the tests of this area train.
#pragma once

#include <string>
#include <vector>

#include <tessera/fsdp/sharded.hpp>

#include "any_pass.hpp"
#include "plain_loop.hpp"

namespace fsdp::foreign {

/// A network: what is declared of it, and its forward and backward of piece number `piece` of a step's `pieces`, which
/// return the piece's part of the mean loss.
struct Network {
  std::string name;
  std::vector<Unit> units;
  Order order;
  UnitOptions unit_options = {};
  double (*compute)(AnyPass& pass, int step, int piece, int pieces) = nullptr;
  double (*compute_in_double)(plain::Loop<double>::Pass& pass, int step, int piece, int pieces) = nullptr;
};

/// examples/14_eigen_unet: two skip connections, batch norm, units in another order than they are used in.
Network unet_network();
/// A table that two units share; a cell and a reader that are used four times in turn; frozen weights; a unit that no
/// order names, since it is never gathered.
Network tied_network();
/// Both.
std::vector<Network> networks();

/// Units of `tied_network`.
enum Tied : int { reader, cell, table, scores, scale, unused };

}  // namespace fsdp::foreign
