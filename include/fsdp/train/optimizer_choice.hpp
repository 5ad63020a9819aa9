// SPDX-License-Identifier: Apache-2.0
/// @file
/// From flags to an optimizer: `--optimizer` and the constants of all kinds where it is optim::RunTime, else the
/// constants of the program's own.
#pragma once

#include <string>
#include <string_view>

#include <fsdp/core/error.hpp>
#include <fsdp/optim/optimizer.hpp>
#include <fsdp/optim/run_time.hpp>
#include <fsdp/train/flag_set.hpp>

namespace fsdp::train {

/// What --optimizer and the flags of constants say.
struct OptimizerChoice {
  std::string name = {};       ///< empty: that of `start`
  GivenValues constants = {};  ///< such as {"beta1", "0.8"}
  optim::RunTime start = {};   ///< the kind and the constants of a program without these flags

  friend bool operator==(const OptimizerChoice&, const OptimizerChoice&) = default;
};

void bind(FlagSet& flags, OptimizerChoice& choice);

/// Throws InputError for a name that is not known, a constant that the optimizer does not have, or a value that cannot
/// work.
optim::RunTime resolve(const OptimizerChoice& choice);

/// Throws InputError for the first constant that cannot work.
template <class Optimizer>
void validate_constants(const Optimizer& optimizer) {
  if constexpr (requires { optimizer.validate(); }) optimizer.validate();
}

/// An optimizer as the flags of a program change it.
template <class Optimizer>
struct ChosenOptimizer {
  Optimizer value;

  void bind(FlagSet& flags) {
    flags.fix("optimizer", std::string(std::string_view(value.name())));
    for (const NamedValue& constant : NamedValues(value).list()) flags.add(constant);
  }
  Optimizer resolve() const {
    validate_constants(value);
    return value;
  }
};

template <>
struct ChosenOptimizer<optim::RunTime> {
  explicit ChosenOptimizer(const optim::RunTime& start) : choice{.start = start} {}

  void bind(FlagSet& flags) { train::bind(flags, choice); }
  optim::RunTime resolve() const { return train::resolve(choice); }

  OptimizerChoice choice;
};

/// Name and constants, one a line, as in TOML.
std::string optimizer_lines(std::string_view name, const ConfigValues& constants);
template <class Optimizer>
std::string optimizer_lines(const Optimizer& optimizer) {
  return optimizer_lines(optimizer.name(), values_of(optimizer));
}

}  // namespace fsdp::train
