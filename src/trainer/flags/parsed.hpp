// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses a command line: CLI11 splits it into texts and lays out --help; the flags read the texts.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tessera/trainer/flags/flags.hpp>

namespace fsdp::train {

/// The command line of one sub-command, or of a program without sub-commands.
class Parsed {
 public:
  /// The flags must outlive it. `section`: its table in a TOML file. `sections`: all tables that a file may have.
  Parsed(CLI::App& app, FlagSet& flags, std::string section, std::vector<std::string> sections);

  /// Checks for unknown flags, then sets fields: first from the file, then from the command line.
  void finish();

 private:
  CLI::Option* added(const Flag& flag);
  void refuse_extras() const;

  CLI::App& app_;
  FlagSet& flags_;
  std::string section_;
  std::vector<std::string> sections_;
  CLI::Option* config_;
  std::vector<CLI::Option*> options_;  ///< by flag
};

/// Parses with CLI11. For --help, stores the text in `help` and returns false. Throws InputError for CLI11's errors,
/// and for a flag whose value is missing, where CLI11 would take the next flag for it.
bool run(CLI::App& app, int argc, const char* const* argv, Help& help);

}  // namespace fsdp::train
