// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes an optimizer from flags: its constants, and for optim::RunTimeOptimizer also its kind (`--optimizer`).
#pragma once

#include <string>
#include <string_view>

#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

namespace fsdp::train {

/// The values of --optimizer and of the flags for constants.
struct OptimizerChoice {
  std::string name = {};               ///< name of the kind; empty: the kind of `start`
  GivenValues constants = {};          ///< constants by flag name, such as {"beta1", "0.8"}
  optim::RunTimeOptimizer start = {};  ///< the program's defaults: a kind and its constants

  friend bool operator==(const OptimizerChoice&, const OptimizerChoice&) = default;
};

/// Adds --optimizer and a flag for each constant of any kind.
void bind(FlagSet& flags, OptimizerChoice& choice);

/// Returns the chosen optimizer. Throws InputError for a name or constant that is unknown or invalid.
optim::RunTimeOptimizer resolve(const OptimizerChoice& choice);

/// Throws InputError for the first constant with an invalid value, if the optimizer has `validate`.
template <class Optimizer>
void validate_constants(const Optimizer& optimizer) {
  static_assert(optim::check_optimizer<Optimizer>());
  if constexpr (requires { optimizer.validate(); }) optimizer.validate();
}

/// A program's own optimizer, whose constants are flags.
template <class Optimizer>
struct ChosenOptimizer {
  Optimizer value;

  void bind(FlagSet& flags) {
    flags.fix("optimizer", std::string(std::string_view(value.name())));
    for (const NamedValue& constant : NamedValues(value).list()) flags.add(constant).effect = Effect::chosen;
  }
  Optimizer resolve() const {
    validate_constants(value);
    return value;
  }
};

/// The optimizer that --optimizer chooses.
template <>
struct ChosenOptimizer<optim::RunTimeOptimizer> {
  explicit ChosenOptimizer(const optim::RunTimeOptimizer& start) : choice{.start = start} {}

  void bind(FlagSet& flags) { train::bind(flags, choice); }
  optim::RunTimeOptimizer resolve() const { return train::resolve(choice); }

  OptimizerChoice choice;
};

/// Returns name and constants, one per line, as TOML.
std::string optimizer_lines(std::string_view name, const ConfigValues& constants);
template <class Optimizer>
std::string optimizer_lines(const Optimizer& optimizer) {
  return optimizer_lines(optimizer.name(), values_of(optimizer));
}

}  // namespace fsdp::train
