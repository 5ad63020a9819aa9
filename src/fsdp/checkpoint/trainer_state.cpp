// SPDX-License-Identifier: Apache-2.0
#include "trainer_state.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/utf8.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::int64_t state_version = 2;
constexpr std::int64_t most_bytes = 65536;  ///< largest size of the file

using Json = nlohmann::json;

/// Writes the fields that `visit` of a struct lists.
struct Writer {
  nlohmann::ordered_json& object;

  bool has(const char*, bool written) const { return written; }
  template <class T>
  void operator()(const char* key, const T& value) const {
    object[key] = value;
  }
  template <class List>
  void operator()(const char* key, const List& values, std::string_view) const {
    if (!values.empty()) object[key] = values;
  }
  template <class Record>
  void operator()(const char* key, const std::optional<Record>& record, std::string_view) const {
    if (record) Record::visit(*record, Writer{object[key]});
  }
};

// Read a value. Return false if it has another type.
template <class T>
bool read(const Json& from, T& to) {
  const std::optional<T> value = value_as<T>(from);
  if (value) to = *value;
  return value.has_value();
}
bool read(const Json& from, std::vector<std::int64_t>& to) {
  return from.is_array() &&
         std::all_of(from.begin(), from.end(), [&](const Json& each) { return read(each, to.emplace_back()); });
}
template <class Record>
bool read(const Json& from, std::optional<Record>& to) {
  std::size_t keys = 0;
  bool sound = from.is_object();
  Record::visit(to.emplace(), [&](const char* key, auto& value) {
    sound = sound && from.contains(key) && read(from.at(key), value);
    ++keys;
  });
  return sound && from.size() == keys;
}

/// Reads the fields that `visit` of a struct lists, and counts them. Throws InputError for a value of another type.
struct Reader {
  const Json& object;
  const std::string& source;
  std::size_t keys = 0;

  bool has(const char* key, bool = true) const { return object.contains(key); }
  void operator()(const char* key, std::uint64_t& value) {
    require<InputError>(has(key) && read(object.at(key), value), source, ": \"", key,
                        "\" must be a whole number that is not negative");
    ++keys;
  }
  void operator()(const char* key, std::int64_t& value) {
    std::uint64_t number = 0;
    (*this)(key, number);
    require<InputError>(read(object.at(key), value), source, ": \"", key, "\" is too large");
  }
  void operator()(const char* key, std::string& value) {
    require<InputError>(has(key) && read(object.at(key), value), source, ": \"", key, "\" must be a string");
    ++keys;
  }
  template <class T>
  void operator()(const char* key, T& value, std::string_view holds) {
    if (!has(key)) return;
    require<InputError>(read(object.at(key), value), source, ": \"", key, "\" must hold ", holds);
    ++keys;
  }
  void operator()(const char* key, std::map<std::string, std::string>& values, std::string_view holds) {
    if (!has(key)) return;
    require<InputError>(object.at(key).is_object(), source, ": \"", key, "\" must hold ", holds);
    for (const auto& [name, value] : object.at(key).items()) {
      require<InputError>(value.is_string(), source, ": \"", key, "\" must hold ", holds, ", and \"", name,
                          "\" is none");
      values[name] = value.get<std::string>();
    }
    ++keys;
  }
};

/// Throws InputError unless JSON can represent the run's values: all names and values must be UTF-8.
void require_texts(const std::map<std::string, std::string>& run) {
  for (const auto& [name, value] : run)
    require<InputError>(
        is_utf8(name) && is_utf8(value), "checkpoint: the run's own value \"", shortened(name),
        "\" is not UTF-8; encode it as text, such as hexadecimal digits, or keep it in a file of your own");
}

}  // namespace

std::string hash_of(std::span<const NamedShape> parameters) {
  std::uint64_t hash = hash_seed;
  for (const NamedShape& parameter : parameters)
    hash = hashed(hashed(hash, parameter.name), shape_text(parameter.shape));
  return digest_text(hash);
}

std::string to_json(const TrainerFile& file) {
  require_texts(file.state.run);
  nlohmann::ordered_json object = {{"format_version", state_version}};
  TrainerFile::visit(file, Writer{object});
  std::string text = object.dump(2) + "\n";
  require<InputError>(std::ssize(text) <= most_bytes, "checkpoint: the run's own values take ", text.size(),
                      " bytes of trainer.json, which holds ", most_bytes, "; keep large ones in files of your own");
  return text;
}

TrainerFile read_trainer_file(const std::filesystem::path& path, const std::optional<Manifest>& manifest) {
  const std::string source = path.string();
  const std::string text = read_small_file(path, most_bytes);
  if (manifest) check_content(*manifest, path, text);
  const Json object = parse_strict(text, source);
  require<InputError>(object.is_object(), source, ": not a JSON object");
  Reader reader{object, source};
  std::uint64_t version = 0;
  reader("format_version", version);
  require<InputError>(version == 1 || version == state_version, source, ": format version ", version,
                      "; this program reads versions 1 and ", state_version);
  TrainerFile file;
  file.has_manifest = version > 1;
  TrainerFile::visit(file, reader);
  require<InputError>(file.state.skipped_steps <= file.state.step, source, ": ", file.state.skipped_steps,
                      " skipped_steps of ", file.state.step, " steps");
  require<InputError>(object.size() == reader.keys, source, ": has ", object.size(), " keys where ", reader.keys,
                      " are known");
  return file;
}

}  // namespace fsdp::checkpoint
