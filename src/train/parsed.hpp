// SPDX-License-Identifier: Apache-2.0
/// @file
/// A command line while it is parsed: CLI11 collects texts, which the flags then read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <fsdp/train/flags.hpp>

namespace fsdp::train {

/// One sub-command, or a program without any.
class Parsed {
 public:
  /// `section`: its table in a TOML file; `sections`: all there may be.
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

/// Runs CLI11; its help is an answer, and false is returned; its errors are ours.
bool run(CLI::App& app, int argc, const char* const* argv, Help& help);

}  // namespace fsdp::train
