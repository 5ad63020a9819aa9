// SPDX-License-Identifier: Apache-2.0
/// @file
/// Named flags bound to fields: one table for the command line, TOML files, --help, checks and a run's record.
///
/// The command line overrides the file; an unknown name in either is an error, and so is an empty value, which is most
/// often an unset variable of a script. An omitted flag without a default is std::nullopt in its field.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/named_values.hpp>

namespace fsdp::train {

/// The syntax of a flag's value. `verbatim` is text that a model reads, for which white space alone is a value.
enum class FlagKind : std::uint8_t { text, verbatim, number, boolean, list };

/// Throws InputError for an empty value, and for white space unless `blank_is_value`. `what`: the value's owner.
void require_value(std::string_view what, std::string_view value, bool blank_is_value = false);

/// How results depend on a flag. This determines whether the flag is in a run's record.
enum class Effect : std::uint8_t {
  none,     ///< results do not depend on it, or the record contains what it refers to, such as the data
  results,  ///< results depend on it: its text is recorded and compared
  chosen,   ///< it selects the ranks, a policy, the model or the optimizer, which are recorded and compared instead
};

/// A flag's values as text. Only a list has several.
using Texts = std::vector<std::string>;

/// A flag and the functions that set, read and check its value.
struct Flag {
  std::string name;  ///< name without dashes
  std::string help;
  FlagKind kind = FlagKind::text;
  Effect effect = Effect::none;
  bool given = false;                     ///< whether the command line or a file set it
  bool position = false;                  ///< whether it is a positional argument; only on the command line
  bool hidden = false;                    ///< whether --help omits it because the command refuses it
  std::function<void(const Texts&)> set;  ///< throws InputError; only `give` calls it
  std::function<Texts()> get;             ///< returns an empty list if the flag is not set
  std::function<void()> check = {};       ///< throws InputError if a number is out of its range
  char between = ' ';        ///< separator of a list's values in a run's record; a newline if values may contain spaces
  std::string missing = {};  ///< error message if the command line omits the flag; empty if it is optional

  /// Sets the user's value. Throws InputError if it is empty, invalid, or several and the flag is not a list.
  void give(const Texts& texts) const;
};

/// Converts text to a value. Throws an InputError that identifies the flag. Other namespaces have overloads, too.
void from_text(std::string_view flag, std::string_view text, std::int64_t& value);
void from_text(std::string_view flag, std::string_view text, std::uint64_t& value);
void from_text(std::string_view flag, std::string_view text, double& value);
void from_text(std::string_view flag, std::string_view text, bool& value);
void from_text(std::string_view flag, std::string_view text, std::string& value);
void from_text(std::string_view flag, std::string_view text, const NamedValue& value);  ///< sets what it refers to

/// Converts a value to the text that from_text reads back to the same value.
std::string to_text(std::int64_t value);
std::string to_text(std::uint64_t value);
std::string to_text(double value);
std::string to_text(bool value);
std::string to_text(const std::string& value);
std::string to_text(const NamedValue& value);
std::string to_text(const ConfigValue& value);

/// The values that the user gave, as text by flag name without dashes.
using GivenValues = std::map<std::string, std::string>;

/// Returns the flag name for a value that `visit` lists: "hidden" for "hidden_size", "kv-heads" for "kv_heads".
std::string flag_name(std::string_view value);

/// Sets the values of a config or an optimizer that the user gave; leaves the others unchanged.
void set_given(const NamedValues& values, const GivenValues& given);

namespace detail {

template <class T>
inline constexpr FlagKind kind_of = std::is_same_v<T, bool>   ? FlagKind::boolean
                                    : std::is_arithmetic_v<T> ? FlagKind::number
                                                              : FlagKind::text;
template <class T>
inline constexpr FlagKind kind_of<std::optional<T>> = kind_of<T>;
template <class T>
inline constexpr FlagKind kind_of<std::vector<T>> = FlagKind::list;

/// Set a field from a flag's texts. A list changes only after all texts are converted.
template <class T>
void read(std::string_view flag, const Texts& texts, T& field) {
  from_text(flag, texts.at(0), field);
}
template <class T>
void read(std::string_view flag, const Texts& texts, std::optional<T>& field) {
  read(flag, texts, field.emplace());
}
template <class T>
void read(std::string_view flag, const Texts& texts, std::vector<T>& field) {
  std::vector<T> values(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) from_text(flag, texts[i], values[i]);
  field = std::move(values);
}

/// Return a field as a flag's texts. Empty text gives an empty list, as for a required flag that is not set yet.
template <class T>
Texts texts_of(const T& field) {
  const std::string text = to_text(field);
  return text.empty() ? Texts() : Texts{text};
}
template <class T>
Texts texts_of(const std::optional<T>& field) {
  return field ? Texts{to_text(*field)} : Texts();
}
template <class T>
Texts texts_of(const std::vector<T>& field) {
  Texts texts;
  for (const T& value : field) texts.push_back(to_text(value));
  return texts;
}

}  // namespace detail

/// The flags of one sub-command; the fields they are bound to must outlive it.
class FlagSet {
 public:
  /// Adds a flag; adding the next one may invalidate the reference. Throws Error if a flag of this name exists.
  Flag& add(Flag flag);

  /// Adds a flag that sets a field, whose present value is the default that --help shows; nullopt means none.
  template <class T>
  Flag& add(const std::string& name, T& field, const std::string& help) {
    return add({.name = name,
                .help = help,
                .kind = detail::kind_of<T>,
                .set = [name, &field](const Texts& texts) { detail::read(name, texts, field); },
                .get = [&field] { return detail::texts_of(field); }});
  }

  /// Adds a flag for a value that no field stores: `load` returns the present one, `store` receives the user's.
  template <std::invocable Load, class Store>
  Flag& add(const std::string& name, Load load, Store store, const std::string& help) {
    using T = std::invoke_result_t<Load>;
    const auto set = [name, store](const Texts& texts) {
      T value{};
      detail::read(name, texts, value);
      store(value);
    };
    const auto get = [load] { return detail::texts_of(load()); };
    return add({.name = name, .help = help, .kind = detail::kind_of<T>, .set = set, .get = get});
  }

  /// Adds a number that must be in `range`, also if a program assigns the field directly (require_ranges).
  template <class Field, class T>
  Flag& add(const std::string& name, Field& field, const std::string& help, const Range<T>& range) {
    Flag& flag = add(name, field, help);
    flag.check = [name, &field, range] {
      if (const std::optional<T> value = field) require_in_range(name, *value, range);
    };
    return flag;
  }

  /// Adds a flag with any of the overloads above, and sets its effect on results.
  template <class... Parts>
  Flag& add(Effect effect, const std::string& name, Parts&&... parts) {
    Flag& flag = add(name, std::forward<Parts>(parts)...);
    flag.effect = effect;
    return flag;
  }

  Flag& add(const NamedValue& value);  ///< adds a flag for a config's or an optimizer's value
  /// Adds a flag with the name and type of `like`. Its value is checked against the type and stored as text in `given`,
  /// for a config or an optimizer that is chosen later; `set_given` then sets it there.
  void add_given(const NamedValue& like, GivenValues& given, const std::string& help);

  /// Declares a flag that this program or command does not have. `why`: the rest of a sentence after the flag.
  void refuse(const std::string& name, const std::string& why) { refused_[name] = "--" + name + " " + why; }
  /// Declares a flag of other programs whose value this program's types fix.
  void fix(const std::string& name, const std::string& value) { refuse(name, "is fixed by this program: " + value); }
  /// Returns the error sentence of a refused flag; empty if `name` is not refused.
  std::string refusal(const std::string& name) const;

  std::vector<Flag>& flags() { return flags_; }
  const std::vector<Flag>& flags() const { return flags_; }
  /// Returns whether the command line or a file set a flag. Throws Error if the flag does not exist.
  bool is_given(std::string_view name) const;
  Flag* find(std::string_view name);       ///< nullptr if the flag does not exist or is a positional argument
  std::vector<std::string> names() const;  ///< without those of positional arguments

  void read_from(const std::string& path) { files_.push_back(path); }  ///< notes a file that set flags (apply_file)
  const std::vector<std::string>& files() const { return files_; }     ///< the files that set flags, in their order

  void require_ranges() const;  ///< throws InputError for the first bound number that is out of its range

 private:
  std::vector<Flag> flags_;
  std::map<std::string, std::string> refused_;  ///< error sentences by flag name
  std::vector<std::string> files_;
};

/// Sets flags from a TOML file: first from its top level, then from its table called `section`. Ignores the tables of
/// other sub-commands (`sections`). Throws InputError on an unknown key, with the nearest known one.
void apply_file(FlagSet& flags, const std::string& path, const std::string& section,
                const std::vector<std::string>& sections);
/// Sets values from a TOML file whose keys are not command-line flags. Errors identify the file and the key.
void apply_keys(FlagSet& keys, const std::string& path);

/// Returns TOML that sets every flag, except those with the effect `but`, to its present value.
std::string write_toml(const FlagSet& flags, std::optional<Effect> but = {});

/// Options at a stable address, and the flags that a command bound to them. The command line and files set the options
/// through these flags; checks, the comparison of arguments between ranks and a run's record read them.
template <class Options>
struct Bound {
  std::unique_ptr<Options> options = std::make_unique<Options>();
  FlagSet flags = {};

  Options& operator*() const { return *options; }
  Options* operator->() const { return options.get(); }
};

}  // namespace fsdp::train
