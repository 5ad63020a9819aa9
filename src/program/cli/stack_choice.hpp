// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policies as values: parses and prints `--precision`, `--offload`, `--tiling` and `--comm`; strategies.hpp does
/// `--sharding` and `--layout`.
///
/// These values choose a compiled stack; the policies' types are in sharding/, precision/, tiling/ and comm/.
/// To add a communicator: its kind and name here, and its type in cmake/stacks.cmake.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/tiling/policies.hpp>

#include "strategies.hpp"

namespace fsdp::cli {

/// --precision.
enum class PrecisionChoice : std::uint8_t { fp32, bf16, bf16_wire };

/// --offload: what is kept in host memory.
enum class OffloadChoice : std::uint8_t { none, optimizer };

/// --comm. A name with :N is of a communicator whose ranks the program starts, N of them.
struct CommChoice {
  enum class Kind : std::uint8_t { self, threads, mpi, nccl };
  static constexpr std::array<std::string_view, 4> names = {"self", "threads:N", "mpi", "nccl"};
  Kind kind = Kind::threads;
  std::int64_t ranks = 1;  ///< of a name with :N; of others the launcher knows it

  std::string_view name() const { return names[static_cast<std::size_t>(kind)]; }
  bool counts() const { return name().ends_with(":N"); }

  friend bool operator==(const CommChoice&, const CommChoice&) = default;
};

/// The policies that every sub-command with a stack takes.
struct StackChoice {
  ShardingChoice sharding;
  PrecisionChoice precision = PrecisionChoice::bf16;
  OffloadChoice offload = OffloadChoice::none;
  tiling::RunTimeTiling tiling;
  CommChoice comm;

  friend bool operator==(const StackChoice&, const StackChoice&) = default;
};

/// Returns the communicator's name without its number, as in its header's.
std::string name_of_comm(const CommChoice& comm);

/// What a program was built with: each communicator with each precision and every strategy.
struct BuiltWith {
  std::vector<std::string> comms, precisions;
};
/// Lists it, a line for each flag.
std::string text_of(const BuiltWith& has);
/// Returns which part of a stack a program lacks, and how to build it; empty: none.
std::string lacking(const StackChoice& asked, const BuiltWith& has);
/// Throws InputError, with that text.
void require_built(const StackChoice& asked, const BuiltWith& has);

/// Returns the tiling. Throws InputError for budget:auto, which a trainer alone replaces.
const tiling::RunTimeTiling& known_tiling(const tiling::RunTimeTiling& tiling);

// Conversions for flags (tessera/trainer/flags/flag_set.hpp): the text of a value is read as the same value. An unknown
// name is an InputError, which suggests the nearest one.
void from_text(std::string_view flag, std::string_view text, PrecisionChoice& value);
void from_text(std::string_view flag, std::string_view text, OffloadChoice& value);
void from_text(std::string_view flag, std::string_view text, CommChoice& value);
std::string to_text(PrecisionChoice value);
std::string to_text(OffloadChoice value);
std::string to_text(const CommChoice& value);

}  // namespace fsdp::cli

namespace fsdp::tiling {

/// The same for --tiling.
void from_text(std::string_view flag, std::string_view text, RunTimeTiling& value);
std::string to_text(const RunTimeTiling& value);

}  // namespace fsdp::tiling
