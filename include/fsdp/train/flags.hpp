// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program's command line and its TOML file. The command line wins; an unknown name in either is an error.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include <fsdp/train/options.hpp>

namespace fsdp::cli {

/// `--help` was asked for: print and end with status 0.
struct Help {
  std::string text;
};

/// A program that only trains: the flags of `tessera train` without the sub-command.
std::variant<Help, train::TrainOptions> parse_train(int argc, const char* const* argv);

/// All options as the TOML file that gives them.
std::string to_toml(const train::TrainOptions& options);
std::string to_toml(const train::EvalOptions& options);
std::string to_toml(const train::GenerateOptions& options);

}  // namespace fsdp::cli
