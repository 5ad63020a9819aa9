// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses a command line: CLI11 splits it into texts, gives them to the flags and lays out --help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tessera/trainer/flags/flags.hpp>

namespace fsdp::train {

/// Adds --config and an option for each flag to a program or a sub-command. Parsing then checks for unknown flags, sets
/// fields, first from the file, then from the command line, and checks for missing flags. The flags must outlive the
/// program. `section`: table of the program or sub-command in a TOML file. `sections`: all tables that a file may have.
void add_options(CLI::App& app, FlagSet& flags, const std::string& section, const std::vector<std::string>& sections);

/// Parses with CLI11. Returns the text of --help if it is requested. Throws InputError, also for a missing value.
std::optional<Help> run(CLI::App& app, int argc, const char* const* argv);

}  // namespace fsdp::train
