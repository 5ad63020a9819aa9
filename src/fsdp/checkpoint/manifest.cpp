// SPDX-License-Identifier: Apache-2.0
#include "manifest.hpp"

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/strings.hpp"
#include "file_sums.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::int64_t manifest_version = 1;
constexpr std::int64_t most_bytes = 64 << 20;
// The manifest's own checksum covers all bytes up to the end of this text
constexpr std::string_view before_own_sum = ",\n  \"crc32c\": \"";
constexpr std::string_view after_own_sum = "\"\n}\n";
constexpr std::size_t digits = 8;

std::string text_of(std::uint32_t sum) { return hexadecimal(sum, digits); }

std::uint32_t crc32c_of_text(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

/// Parses a checksum in the form that text_of writes: lower-case digits only.
std::optional<std::uint32_t> sum_in(std::string_view text) {
  const std::optional<std::uint32_t> sum = parsed<std::uint32_t>(text, 16);
  return sum && text_of(*sum) == text ? sum : std::nullopt;
}

FileSums parse_file(const nlohmann::json& entry, const std::string& where) {
  const auto number = [&](const char* key) {
    const std::optional<std::int64_t> found = value_at<std::int64_t>(entry, key);
    require<InputError>(found.has_value(), where, ": \"", key, "\" must be a whole number that is not negative");
    return *found;
  };
  const std::optional<std::string_view> list = value_at<std::string_view>(entry, "crc32c");
  require<InputError>(list && entry.size() == 3, where, ": must have exactly bytes, chunk_bytes and crc32c");
  FileSums sums{.bytes = number("bytes"), .chunk_bytes = number("chunk_bytes"), .crc32cs = {}};
  const std::string_view text = *list;
  // A reader allocates a chunk's memory, so the file must not choose its length.
  require<InputError>(sums.chunk_bytes == chunk_bytes_of(sums.bytes) && text.size() % digits == 0 &&
                          static_cast<std::int64_t>(text.size() / digits) == ceil_divide(sums.bytes, sums.chunk_bytes),
                      where, ": has ", text.size() / digits, " checksums for ", sums.bytes, " bytes in chunks of ",
                      sums.chunk_bytes);
  for (std::size_t at = 0; at < text.size(); at += digits) {
    const std::optional<std::uint32_t> sum = sum_in(text.substr(at, digits));
    require<InputError>(sum.has_value(), where, ": a checksum is not 8 hexadecimal digits");
    sums.crc32cs.push_back(*sum);
  }
  return sums;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [name, sums] : manifest.files) {
    std::string text;
    for (const std::uint32_t sum : sums.crc32cs) text += text_of(sum);
    files[name] = {{"bytes", sums.bytes}, {"chunk_bytes", sums.chunk_bytes}, {"crc32c", std::move(text)}};
  }
  std::string text = nlohmann::ordered_json{{"format_version", manifest_version}, {"files", std::move(files)}}.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  text += before_own_sum;
  return text + text_of(crc32c_of_text(text)) + std::string(after_own_sum);
}

std::optional<Manifest> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / manifest_name;
  const std::string source = path.string();
  std::string text;
  try {
    text = read_small_file(path, most_bytes);
  } catch (const FileError& error) {
    if (error.absent()) return std::nullopt;
    throw;
  }
  const std::size_t tail = digits + after_own_sum.size();
  const bool framed = text.size() > before_own_sum.size() + tail && text.ends_with(after_own_sum) &&
                      std::string_view(text).substr(0, text.size() - tail).ends_with(before_own_sum);
  require<InputError>(framed, source,
                      ": does not end with its own checksum; it was cut short, or is not a manifest of ", "Tessera's");
  const std::string_view summed = std::string_view(text).substr(0, text.size() - tail);
  require<InputError>(sum_in(std::string_view(text).substr(summed.size(), digits)) == crc32c_of_text(summed), source,
                      ": is not what was written: its own checksum differs");
  const nlohmann::json object = parse_strict(text, source, {.depth = 4, .values = 1000, .text = std::size_t{4} << 20});
  require<InputError>(object.is_object() && object.size() == 3 && object.contains("format_version") &&
                          object.contains("files") && object.at("files").is_object(),
                      source, ": must have exactly format_version, files and crc32c");
  require<InputError>(object.at("format_version") == manifest_version, source, ": format version ",
                      shortened(object.at("format_version").dump()), "; this program reads version ", manifest_version);
  Manifest manifest;
  for (const auto& [name, entry] : object.at("files").items())
    manifest.files.emplace(name, parse_file(entry, message(source, ": \"", name, "\"")));
  return manifest;
}

const FileSums& sums_in(const Manifest& manifest, const std::filesystem::path& file) {
  const auto found = manifest.files.find(file.filename().string());
  require<InputError>(found != manifest.files.end(), file.string(), ": is not listed in manifest.json beside it");
  return found->second;
}

void check_content(const Manifest& manifest, const std::filesystem::path& file, std::string_view content) {
  const FileSums& sums = sums_in(manifest, file);
  require<InputError>(static_cast<std::int64_t>(content.size()) == sums.bytes, file.string(), ": ", content.size(),
                      " bytes where manifest.json tells of ", sums.bytes, "; it was cut short or changed");
  const auto bytes = std::as_bytes(std::span(content));
  for (std::size_t chunk = 0; chunk < sums.crc32cs.size(); ++chunk) {
    const auto number = static_cast<std::int64_t>(chunk);
    sums.check(file, number,
               bytes.subspan(static_cast<std::size_t>(sums.begin_of(number)),
                             static_cast<std::size_t>(sums.length_of(number))));
  }
}

}  // namespace fsdp::checkpoint
