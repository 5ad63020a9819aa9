// SPDX-License-Identifier: Apache-2.0
/// @file
/// The C++ of a stack that the program was compiled without.
#pragma once

#include <optional>
#include <string>

#include "stack_choice.hpp"

namespace fsdp::cli {

/// A policy as C++: its type, and the braces that initialize its numbers; empty if all have their defaults.
struct Spelled {
  std::string type;
  std::string value = {};

  friend bool operator==(const Spelled&, const Spelled&) = default;
};

/// Spells --sharding, --layout and --offload.
Spelled spelled_sharding(const ShardingChoice& choice, OffloadChoice offload);

/// Returns the communicator's name without its number, as in its header's.
std::string name_of_comm(const CommChoice& comm);

/// Returns a program of a few lines that trains with this stack, indented. `shards_sequences`: whether it takes
/// --sequence ulysses:K.
std::string stack_lines(const StackChoice& choice, bool shards_sequences = false);

/// Returns the stack's name in CMake's TESSERA_STACKS (cmake/stacks.cmake), such as "zero3/mpi/bf16"; nothing if that
/// has no name for it.
std::optional<std::string> cmake_name(const StackChoice& choice);
/// Returns a line for a stack that the program lacks: by what it comes into one.
std::string how_to_compile(const StackChoice& choice);

}  // namespace fsdp::cli
