// SPDX-License-Identifier: Apache-2.0
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

#include "../../fsdp/core/json/strict_json.hpp"

namespace fsdp::train {
namespace {

/// The largest integer of TOML is 2^63 - 1. A larger seed is written as a string, which can be read back.
bool is_beyond_toml(const std::string& number) {
  const std::string largest = "9223372036854775807";
  if (number.find_first_not_of("0123456789") != std::string::npos || number.size() < largest.size()) return false;
  return number.size() > largest.size() || number > largest;
}

/// Returns a scalar as text, as on the command line. Throws InputError for a type that the flag does not accept.
std::string scalar_text(const toml::node& node, FlagKind kind, const std::string& where) {
  const bool is_number = kind == FlagKind::number, is_boolean = kind == FlagKind::boolean;
  if (const auto* text = node.as_string()) {
    const bool is_blank = text->get().find_first_not_of(" \t\r\n\v\f") == std::string::npos;  // Flag::give refuses it
    require<InputError>(is_blank || (!is_boolean && (!is_number || is_beyond_toml(text->get()))), where,
                        " is the text '", shortened(text->get()), "'; give ", is_number ? "a number" : "true or false",
                        ", without quotes");
    return text->get();
  }
  require<InputError>(is_number || is_boolean || !node.is_boolean(), where,
                      " is true or false; give a text, in quotes");
  if (const auto* number = node.as_integer()) return to_text(number->get());
  if (const auto* number = node.as_floating_point()) return to_text(number->get());
  if (const auto* truth = node.as_boolean()) return to_text(truth->get());
  throw InputError(where + ": must be text, a number, true or false");
}

/// Returns the last byte of the quoted text or the comment that begins at `at`; `at` if neither begins there.
std::size_t end_of_unread(std::string_view text, std::size_t at) {
  const char c = text[at];
  if (c == '#') return std::min(text.find('\n', at), text.size()) - 1;
  if (c != '"' && c != '\'') return at;
  const std::string mark(text.substr(at, 3) == std::string(3, c) ? 3 : 1, c);
  std::size_t end = at + mark.size();
  while (end < text.size() && text.substr(end, mark.size()) != mark) {
    if (mark.size() == 1 && text[end] == '\n') return end - 1;
    end += c == '"' && text[end] == '\\' ? 2 : 1;
  }
  return end + mark.size() - 1;
}

/// Throws InputError for keys that would crash the parser: keys of very many parts (a.b.c), since each part becomes a
/// nested table, whose destructor is recursive; and characters that no key contains, which toml++ 3.3 assumes to be
/// impossible. (The parser itself limits the depth of arrays and inline tables.)
void check_keys(std::string_view text, const std::string& path) {
  constexpr int most_dots = 30;
  int dots = 0, open = 0;
  bool line_begins = true;
  for (std::size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; at < text.size(); ++at) {
    const char c = text[at];
    require<InputError>(static_cast<unsigned char>(c) < 0x80, path,
                        ": a character beyond ASCII stands outside of quotes; put quotes around the text");
    if (c == '[' && open == 0 && line_begins) {
      std::size_t name = text.find_first_not_of(" \t", at + 1);
      if (name != text.npos && text[name] == '[') name = text.find_first_not_of(" \t", name + 1);
      const auto next = static_cast<unsigned char>(name == text.npos ? ']' : text[name]);
      require<InputError>(
          std::isalnum(next) != 0 || std::string_view("_-\"']").find(static_cast<char>(next)) != std::string_view::npos,
          path, ": a table's name, behind [, begins with what is no letter of a name");
    }
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    const bool is_blank = c == ' ' || c == '\t' || c == '\r';
    line_begins = c == '\n' || (line_begins && is_blank);
    if (std::string_view("=[]{},\n").find(c) != std::string_view::npos) dots = 0;
    require<InputError>(c != '.' || ++dots <= most_dots, path, ": a key has more than ", most_dots, " parts");
    at = end_of_unread(text, at);
  }
}

/// `mark`: separator of the words of a key in errors. A file whose keys are not flags uses underscores.
void set_all(FlagSet& flags, const toml::table& table, const std::string& path,
             const std::vector<std::string>& sections, char mark) {
  const auto shown = [mark](std::string name) {
    std::ranges::replace(name, '-', mark);
    return name;
  };
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    if (node.is_table() && std::ranges::find(sections, name) != sections.end()) continue;
    std::ranges::replace(name, '_', '-');
    const std::string where = message(path, ": ", shown(name)), refusal = flags.refusal(name);
    require<InputError>(refusal.empty(), path, ": ", refusal);
    Flag* const flag = flags.find(name);
    Texts known = flags.names(), texts;
    std::ranges::transform(known, known.begin(), shown);
    require<InputError>(flag != nullptr, path, ": unknown key '", shortened(key.str()), "'; ",
                        suggestion(shown(name), known));
    const toml::array* const array = node.as_array();
    require<InputError>(array == nullptr || flag->kind == FlagKind::list, where, " takes one value and is a list; ",
                        "give the value without brackets");
    if (array != nullptr)
      for (const toml::node& entry : *array) texts.push_back(scalar_text(entry, flag->kind, where));
    else
      texts.push_back(scalar_text(node, flag->kind, where));
    try {
      flag->give(texts);
    } catch (const InputError& error) {
      std::string sentence = error.what();
      if (const std::string named = "--" + name; mark == '_' && sentence.starts_with(named))
        sentence.replace(0, named.size(), shown(name));
      throw InputError(message(path, ": ", sentence));
    }
    flag->given = true;
  }
}

/// `what`: prefix of the path in errors about the whole file.
toml::table read_table(const std::string& path, const std::string& what) {
  constexpr std::int64_t most_bytes = 1 << 20;
  try {
    const std::string text = read_small_file(path, most_bytes);
    check_keys(text, path);
    return toml::parse(text, path);
  } catch (const InputError& error) {
    throw InputError(message(what, error.what()));
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    throw InputError(
        message(what, path, ": ", shortened(error.description(), 300), line > 0 ? message(" at line ", line) : ""));
  }
}

}  // namespace

void apply_file(FlagSet& flags, const std::string& path, const std::string& section,
                const std::vector<std::string>& sections) {
  const toml::table table = read_table(path, "--config ");
  flags.read_from(path);
  set_all(flags, table, path, sections, '-');
  if (const toml::table* own = table[section].as_table()) set_all(flags, *own, path, {}, '-');
}

void apply_keys(FlagSet& keys, const std::string& path) { set_all(keys, read_table(path, ""), path, {}, '_'); }

std::string write_toml(const FlagSet& flags, std::optional<Effect> but) {
  std::string toml;
  for (const Flag& flag : flags.flags()) {
    const Texts texts = flag.get();
    if (texts.empty() || flag.effect == but) continue;
    const bool bare = (flag.kind == FlagKind::number || flag.kind == FlagKind::boolean) && !is_beyond_toml(texts[0]);
    const nlohmann::json quoted = flag.kind == FlagKind::list ? nlohmann::json(texts) : nlohmann::json(texts[0]);
    toml += message(flag.name, " = ", bare ? texts[0] : json_text(quoted), "\n");
  }
  return toml;
}

}  // namespace fsdp::train
