// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policies as values: parses and prints `--precision`, `--offload`, `--tiling` and `--comm`; `--sharding` and
/// `--layout` are in strategies.hpp.
///
/// These values select a compiled stack; the policies' types are in sharding/, precision/, tiling/ and comm/. To add a
/// communicator: its kind and name here, and its type in cmake/stacks.cmake.
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

/// Values of --precision.
enum class PrecisionChoice : std::uint8_t { fp32, bf16, bf16_wire };

/// Values of --offload: the data that are in host memory.
enum class OffloadChoice : std::uint8_t { none, optimizer };

/// Values of --comm. A name with :N is a communicator for which the program itself starts N ranks.
struct CommChoice {
  enum class Kind : std::uint8_t { self, threads, mpi, nccl };
  static constexpr std::array<std::string_view, 4> names = {"self", "threads:N", "mpi", "nccl"};
  Kind kind = Kind::threads;
  std::int64_t ranks = 1;  ///< number of ranks for a name with :N; otherwise the launcher determines it

  std::string_view name() const { return names[static_cast<std::size_t>(kind)]; }
  bool counts() const { return name().ends_with(":N"); }

  friend bool operator==(const CommChoice&, const CommChoice&) = default;
};

/// The policies of every sub-command that uses a stack.
struct StackChoice {
  ShardingChoice sharding;
  PrecisionChoice precision = PrecisionChoice::bf16;
  OffloadChoice offload = OffloadChoice::none;
  tiling::RunTimeTiling tiling;
  CommChoice comm;

  friend bool operator==(const StackChoice&, const StackChoice&) = default;
};

/// Returns the communicator's name without its number of ranks, as in the name of its header.
std::string name_of_comm(const CommChoice& comm);

/// The contents of a program: each communicator is combined with each precision and every strategy.
struct BuiltWith {
  std::vector<std::string> comms, precisions;
};
/// Lists the contents, one line per flag.
std::string text_of(const BuiltWith& has);
/// Returns which part of a stack the program lacks, and how to build it; empty if it lacks none.
std::string lacking(const StackChoice& asked, const BuiltWith& has);
/// Throws InputError with the text of `lacking` unless it is empty.
void require_built(const StackChoice& asked, const BuiltWith& has);

/// Returns the tiling. Throws InputError for budget:auto, which only a trainer can resolve.
const tiling::RunTimeTiling& known_tiling(const tiling::RunTimeTiling& tiling);

// Conversions for flags (tessera/trainer/flags/flag_set.hpp): the text of a value converts back to the same value. An
// unknown name is an InputError, which suggests the nearest one.
void from_text(std::string_view flag, std::string_view text, PrecisionChoice& value);
void from_text(std::string_view flag, std::string_view text, OffloadChoice& value);
void from_text(std::string_view flag, std::string_view text, CommChoice& value);
std::string to_text(PrecisionChoice value);
std::string to_text(OffloadChoice value);
std::string to_text(const CommChoice& value);

}  // namespace fsdp::cli

namespace fsdp::tiling {

/// Conversions for --tiling.
void from_text(std::string_view flag, std::string_view text, RunTimeTiling& value);
std::string to_text(const RunTimeTiling& value);

}  // namespace fsdp::tiling
