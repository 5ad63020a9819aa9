// SPDX-License-Identifier: Apache-2.0
#include "strict_json.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include <tessera/fsdp/core/file.hpp>

#include "../magics.hpp"

namespace fsdp {
namespace {

/// Builds the value event by event, so that a limit stops the parser before it allocates anything large.
template <class Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  using number_integer_t = typename Json::number_integer_t;
  using number_unsigned_t = typename Json::number_unsigned_t;
  using number_float_t = typename Json::number_float_t;
  using string_t = typename Json::string_t;
  using binary_t = typename Json::binary_t;

  Builder(const std::string& source, const JsonLimits& limits) : source_(source), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool whole = text.find_first_of(".eE") == text.npos;
    if (!limits_.keep_digits || !whole) return scalar(value);
    return scalar(Json::binary(typename Json::binary_t::container_type(text.begin(), text.end())));
  }
  bool string(string_t& value) override {
    check_text(value);
    return scalar(std::move(value));
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return start(Json::object()); }
  bool key(string_t& name) override {
    check_text(name);
    if (!is_ordered && open_.back()->contains(name)) refuse_repeated(name);
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    if (is_ordered) check_keys(open_.back()->template get_ref<const typename Json::object_t&>());
    return end();
  }
  bool start_array(std::size_t) override { return start(Json::array()); }
  bool end_array() override { return end(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    throw InputError(message(source_, ": not valid JSON at byte ", position, " (", shortened(error.what(), 300), ")"));
  }

 private:
  /// An ordered object is a vector with linear look-ups: its keys are appended, and checked for duplicates when it
  /// ends.
  static constexpr bool is_ordered = std::is_same_v<Json, nlohmann::ordered_json>;

  [[noreturn]] void refuse_repeated(std::string_view name) const {
    throw InputError(message(source_, ": the key \"", shortened(name), "\" stands twice in one object"));
  }

  void check_keys(const typename Json::object_t& object) const {
    std::vector<std::string_view> names;
    names.reserve(object.size());
    for (const auto& [name, value] : object) names.push_back(name);
    std::sort(names.begin(), names.end());
    const auto repeated = std::adjacent_find(names.begin(), names.end());
    if (repeated != names.end()) refuse_repeated(*repeated);
  }

  Json* add_member(Json& parent, Json value) {
    if constexpr (is_ordered) {
      typename Json::object_t::Container& members = parent.template get_ref<typename Json::object_t&>();
      return &members.emplace_back(std::move(key_), std::move(value)).second;
    } else {
      return &(parent[key_] = std::move(value));
    }
  }

  void check_text(const std::string& text) const {
    require<InputError>(text.size() <= limits_.text, source_, ": a string of ", text.size(), " bytes; at most ",
                        limits_.text, " are allowed");
  }

  Json* place(Json value) {
    require<InputError>(++values_ <= limits_.values, source_, ": more than ", limits_.values, " values");
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return add_member(parent, std::move(value));
    require<InputError>(parent.size() < limits_.array, source_, ": an array of more than ", limits_.array, " entries");
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool scalar(Json value) {
    place(std::move(value));
    return true;
  }

  bool start(Json value) {
    require<InputError>(open_.size() < limits_.depth, source_, ": nested deeper than ", limits_.depth, " levels");
    open_.push_back(place(std::move(value)));
    return true;
  }

  bool end() {
    open_.pop_back();
    return true;
  }

  const std::string& source_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;  // open objects and arrays; a parent gets no new entries while a child is open
  std::string key_;
  std::size_t values_ = 0;
};

template <class Json>
Json parse_as(std::string_view text, const std::string& source, const JsonLimits& limits) {
  // The parser treats NUL as the end and would ignore the rest of the text.
  const std::size_t nul = text.find('\0');
  require<InputError>(nul == std::string_view::npos, source, ": not valid JSON at byte ", nul, " (a NUL byte)");
  Builder<Json> builder(source, limits);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &builder);
  require<InputError>(whole, source, ": not valid JSON");
  return builder.take();
}

}  // namespace

nlohmann::json parse_strict(std::string_view text, const std::string& source, const JsonLimits& limits) {
  return parse_as<nlohmann::json>(text, source, limits);
}

nlohmann::ordered_json parse_strict_ordered(std::string_view text, const std::string& source,
                                            const JsonLimits& limits) {
  return parse_as<nlohmann::ordered_json>(text, source, limits);
}

std::string json_text(const nlohmann::json& value, bool ascii) {
  return value.dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json json_object(std::initializer_list<JsonMember> members) {
  auto object = nlohmann::ordered_json::object();
  for (const JsonMember& member : members) object[member.key] = member.value;
  return object;
}

std::string object_text(std::initializer_list<JsonMember> members) { return json_text(json_object(members)); }

nlohmann::json json_value(std::string_view text) {
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
}
nlohmann::ordered_json json_value_ordered(std::string_view text) {
  return nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr, false);
}

std::string read_small_file(const std::filesystem::path& path, std::int64_t most_bytes) {
  const FileDescriptor file = [&] {
    try {  // a pipe is rejected below
      return open_file(path, O_RDONLY | O_NOCTTY | O_NONBLOCK, "opened");
    } catch (const FileError& error) {
      std::error_code unknown;
      if (error.number() != ENOENT || std::filesystem::is_symlink(path, unknown)) throw;
      throw FileError(path.string() + ": no such file", ENOENT);
    }
  }();
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno(path, "read");
  require<InputError>(S_ISREG(status.st_mode), path.string(), ": not a regular file",
                      S_ISDIR(status.st_mode) ? " but a folder" : "");
  require<InputError>(status.st_size <= most_bytes, path.string(), ": ", status.st_size, " bytes; at most ", most_bytes,
                      " are read");
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  read_all(file, path, text.data(), text.size(), 0);
  require_no_lfs_pointer(path, text);
  require_no_html(path, text);
  return text;
}

}  // namespace fsdp
