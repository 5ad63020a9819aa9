// SPDX-License-Identifier: Apache-2.0
/// @file
/// Named flags bound to fields, read from text and written back: one table for the command line, TOML and --help.
///
/// The command line wins over the file; an unknown name in either is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/core/named_values.hpp>
#include <fsdp/models/config_values.hpp>
#include <fsdp/train/learning_rate.hpp>

namespace fsdp::train {

/// How a flag stands on the command line and in TOML.
enum class FlagKind : std::uint8_t { text, number, boolean, list };

/// The numbers that make sense for a flag: at least `least` and at most `most`, or above and below.
template <class T>
struct Range {
  T least = std::numeric_limits<T>::lowest();
  T most = std::numeric_limits<T>::max();
  bool above = false;  ///< `least` itself is none
  bool below = false;  ///< `most` itself is none

  bool holds(T value) const {
    return (above ? value > least : value >= least) && (below ? value < most : value <= most);
  }
  std::string text() const {
    const std::string low = message(above ? "above " : "at least ", least);
    return most == std::numeric_limits<T>::max() ? low : message(low, " and ", below ? "below " : "at most ", most);
  }
};

/// Throws InputError, naming flag, value and range.
template <class T>
void require_in_range(std::string_view flag, T value, const Range<T>& range) {
  require<InputError>(range.holds(value), "--", flag, " ", value, " must be ", range.text());
}

struct Flag {
  std::string name;  ///< without dashes
  std::string help;
  FlagKind kind = FlagKind::text;
  std::function<void(const std::vector<std::string>&)> set;  ///< throws InputError
  std::function<std::vector<std::string>()> get;             ///< empty: not set
  std::function<void()> check = {};                          ///< throws InputError where a number is out of its range
};

/// Text to value: throws InputError naming the flag. A type of another namespace brings its own overloads there.
void from_text(std::string_view flag, std::string_view text, std::int64_t& value);
void from_text(std::string_view flag, std::string_view text, std::uint64_t& value);
void from_text(std::string_view flag, std::string_view text, double& value);
void from_text(std::string_view flag, std::string_view text, bool& value);
void from_text(std::string_view flag, std::string_view text, std::string& value);
void from_text(std::string_view flag, std::string_view text, LrShape& value);

/// Value to the text that reads back to it.
std::string to_text(std::int64_t value);
std::string to_text(std::uint64_t value);
std::string to_text(double value);
std::string to_text(bool value);
std::string to_text(const std::string& value);
std::string to_text(LrShape value);
std::string to_text(const NamedValue& value);
std::string to_text(const ConfigValue& value);

/// Values that were given, as texts by the names of their flags.
using GivenValues = std::map<std::string, std::string>;

/// The flag of a value that a config or an optimizer visits: "hidden_size" is --hidden, "kv_heads" --kv-heads.
std::string flag_name(std::string_view value);

/// Sets those of a config's or an optimizer's values that were given.
void set_given(const NamedValues& values, const GivenValues& given);

/// The flags of one sub-command; the fields they are bound to must outlive it.
class FlagSet {
 public:
  /// Throws Error where there is one of this name.
  void add(Flag flag);

  template <class T>
  void add(const std::string& name, T& field, const std::string& help) {
    add({.name = name,
         .help = help,
         .kind = kind_of<T>(),
         .set = [name, &field](const auto& texts) { from_text(name, single(name, texts), field); },
         .get = [&field] { return std::vector{to_text(field)}; }});
  }

  template <class T>
  void add(const std::string& name, std::optional<T>& field, const std::string& help) {
    add({.name = name,
         .help = help,
         .kind = kind_of<T>(),
         .set = [name, &field](const auto& texts) { from_text(name, single(name, texts), field.emplace()); },
         .get = [&field] { return field ? std::vector{to_text(*field)} : std::vector<std::string>(); }});
  }

  /// A number that must be in `range`, wherever it comes from: `set` checks it, and require_ranges.
  template <class T>
  void add(const std::string& name, T& field, const std::string& help, const Range<T>& range) {
    add(name, field, help);
    check_with([name, &field, range] { require_in_range(name, field, range); });
  }
  template <class T>
  void add(const std::string& name, std::optional<T>& field, const std::string& help, const Range<T>& range) {
    add(name, field, help);
    check_with([name, &field, range] {
      if (field) require_in_range(name, *field, range);
    });
  }

  void add(const std::string& name, std::vector<std::string>& field, const std::string& help) {
    add({.name = name,
         .help = help,
         .kind = FlagKind::list,
         .set = [&field](const auto& texts) { field = texts; },
         .get = [&field] { return field; }});
  }

  /// A config's or an optimizer's value.
  void add(const NamedValue& value);
  /// A value of the type of `like`, by its name, that is checked and kept as text until it is known what it belongs to.
  void add_given(const NamedValue& like, GivenValues& given, const std::string& help);

  /// A flag that other programs have, and which this one's types settle: refused by name, and absent from --help.
  void fix(std::string name, std::string value) { fixed_.push_back({std::move(name), std::move(value)}); }
  void refuse_fixed(std::string_view name) const;

  const std::vector<Flag>& flags() const { return flags_; }
  const Flag* find(std::string_view name) const;
  std::vector<std::string> names(std::string_view prefix = "") const;

  /// Throws InputError for the first bound number that is out of its range.
  void require_ranges() const;

  /// The one text. Throws InputError where there are more or none.
  static const std::string& single(const std::string& name, const std::vector<std::string>& texts);

 private:
  template <class T>
  static constexpr FlagKind kind_of() {
    if (std::is_same_v<T, bool>) return FlagKind::boolean;
    return std::is_arithmetic_v<T> ? FlagKind::number : FlagKind::text;
  }

  /// Of the flag that was added last.
  void check_with(std::function<void()> check);

  struct Fixed {
    std::string name, value;
  };

  std::vector<Flag> flags_;
  std::vector<Fixed> fixed_;
};

/// Sets flags from a TOML file: its top level and its table called `section`. Tables of other sub-commands are left
/// alone. Returns the names that were set. Throws InputError on an unknown key, with the nearest one.
std::vector<std::string> apply_file(FlagSet& flags, const std::string& path, const std::string& section,
                                    const std::vector<std::string>& sections);

/// The TOML that sets every flag to its present value.
std::string write_toml(const FlagSet& flags);

}  // namespace fsdp::train
