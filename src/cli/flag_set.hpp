// SPDX-License-Identifier: Apache-2.0
/// @file
/// Named flags bound to fields, read from text and written back: one table for the command line, TOML and --help.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fsdp/train/options.hpp>

#include "bench/options.hpp"

namespace fsdp::cli {

/// How a flag stands on the command line and in TOML.
enum class FlagKind : std::uint8_t { text, number, boolean, list };

struct Flag {
  std::string name;  ///< without dashes
  std::string help;
  FlagKind kind = FlagKind::text;
  std::function<void(const std::vector<std::string>&)> set;  ///< throws InputError
  std::function<std::vector<std::string>()> get;             ///< empty: not set
};

/// Text to value: throws InputError naming the flag.
void from_text(std::string_view flag, std::string_view text, std::int64_t& value);
void from_text(std::string_view flag, std::string_view text, std::uint64_t& value);
void from_text(std::string_view flag, std::string_view text, double& value);
void from_text(std::string_view flag, std::string_view text, bool& value);
void from_text(std::string_view flag, std::string_view text, std::string& value);
void from_text(std::string_view flag, std::string_view text, train::LrShape& value);
void from_text(std::string_view flag, std::string_view text, train::ShardingChoice& value);
void from_text(std::string_view flag, std::string_view text, train::LayoutChoice& value);
void from_text(std::string_view flag, std::string_view text, train::PrecisionChoice& value);
void from_text(std::string_view flag, std::string_view text, train::TilingChoice& value);
void from_text(std::string_view flag, std::string_view text, train::CommChoice& value);

/// Value to the text that reads back to it.
std::string to_text(std::int64_t value);
std::string to_text(std::uint64_t value);
std::string to_text(double value);
std::string to_text(bool value);
std::string to_text(const std::string& value);
std::string to_text(train::LrShape value);
std::string to_text(const train::ShardingChoice& value);
std::string to_text(train::LayoutChoice value);
std::string to_text(train::PrecisionChoice value);
std::string to_text(const train::TilingChoice& value);
std::string to_text(const train::CommChoice& value);

/// The flags of one sub-command; the fields they are bound to must outlive it.
class FlagSet {
 public:
  template <class T>
  void add(const std::string& name, T& field, const std::string& help) {
    flags_.push_back({.name = name,
                      .help = help,
                      .kind = kind_of<T>(),
                      .set = [name, &field](const auto& texts) { from_text(name, single(name, texts), field); },
                      .get = [&field] { return std::vector{to_text(field)}; }});
  }

  template <class T>
  void add(const std::string& name, std::optional<T>& field, const std::string& help) {
    flags_.push_back(
        {.name = name,
         .help = help,
         .kind = kind_of<T>(),
         .set = [name, &field](const auto& texts) { from_text(name, single(name, texts), field.emplace()); },
         .get = [&field] { return field ? std::vector{to_text(*field)} : std::vector<std::string>(); }});
  }

  void add(const std::string& name, std::vector<std::string>& field, const std::string& help) {
    flags_.push_back({.name = name,
                      .help = help,
                      .kind = FlagKind::list,
                      .set = [&field](const auto& texts) { field = texts; },
                      .get = [&field] { return field; }});
  }

  const std::vector<Flag>& flags() const { return flags_; }
  const Flag* find(std::string_view name) const;
  std::vector<std::string> names(std::string_view prefix = "") const;

 private:
  template <class T>
  static constexpr FlagKind kind_of() {
    if (std::is_same_v<T, bool>) return FlagKind::boolean;
    return std::is_arithmetic_v<T> ? FlagKind::number : FlagKind::text;
  }
  static const std::string& single(const std::string& name, const std::vector<std::string>& texts);

  std::vector<Flag> flags_;
};

/// The flags of each sub-command (src/cli/bind.cpp).
void bind(FlagSet& flags, train::TrainOptions& options);
void bind(FlagSet& flags, train::EvalOptions& options);
void bind(FlagSet& flags, train::GenerateOptions& options);
void bind(FlagSet& flags, bench::BenchOptions& options);

/// Sets flags from a TOML file: its top level and its table called `section`. Tables of other sub-commands are left
/// alone. Returns the names that were set. Throws InputError on an unknown key, with the nearest one.
std::vector<std::string> apply_file(FlagSet& flags, const std::string& path, const std::string& section,
                                    const std::vector<std::string>& sections);

/// The TOML that sets every flag to its present value.
std::string write_toml(const FlagSet& flags);

}  // namespace fsdp::cli
