// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses a command line: CLI11 collects the texts, then the flags read them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tessera/trainer/flags/flags.hpp>

namespace fsdp::train {

/// The command line of one sub-command, or of a program without sub-commands.
class Parsed {
 public:
  /// `section`: its table in a TOML file. `sections`: all tables that a file may have.
  Parsed(CLI::App& app, FlagSet flags, std::string section, std::vector<std::string> sections);

  /// Checks for unknown flags, then sets fields: first from the file, then from the command line. Returns the names of
  /// the flags that were set, sorted.
  std::vector<std::string> finish();

 private:
  void add(const Flag& flag);
  void refuse_extras() const;

  CLI::App& app_;
  FlagSet flags_;
  std::string section_, config_;
  std::vector<std::string> sections_;
  std::map<std::string, std::vector<std::string>> texts_;
};

/// Parses with CLI11. For --help, stores the text in `help` and returns false. Throws InputError for CLI11's errors,
/// and for a flag whose value is missing, where CLI11 would take the next flag for it.
bool run(CLI::App& app, int argc, const char* const* argv, Help& help);

}  // namespace fsdp::train
