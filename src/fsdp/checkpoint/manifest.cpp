// SPDX-License-Identifier: Apache-2.0
#include "manifest.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <isa-l/crc.h>
#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/strings.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // without the term x^32; the highest power is the lowest bit
constexpr std::uint32_t ones = 0xffffffff;

/// Returns a * b modulo the polynomial.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ polynomial : b >> 1;
  }
  return product;
}

/// x^(8 * 2^i) for each i: appending a zero byte multiplies by x^8.
constexpr std::array<std::uint32_t, 63> powers = [] {
  std::array<std::uint32_t, 63> made{};
  made[0] = 1u << 23;
  for (std::size_t i = 1; i < made.size(); ++i) made[i] = multiply(made[i - 1], made[i - 1]);
  return made;
}();

/// Returns the remainder `crc` extended by `bytes`, without the usual inversions.
std::uint32_t continued(std::uint32_t crc, std::span<const std::byte> bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // ISA-L's length parameter is an int
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), most);
    // ISA-L only reads the data, but its parameter is not const.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    crc = ::crc32_iscsi(data, static_cast<int>(part), crc);
    bytes = bytes.subspan(part);
  }
  return crc;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) { return continued(ones, bytes) ^ ones; }

std::uint32_t remainder_of(std::span<const std::byte> bytes) { return continued(0, bytes); }

std::uint32_t shifted(std::uint32_t remainder, std::int64_t after) {
  for (std::size_t i = 0; after != 0; ++i, after >>= 1)
    if ((after & 1) != 0) remainder = multiply(powers[i], remainder);
  return remainder;
}

std::uint32_t crc32c_of(std::uint32_t remainder, std::int64_t bytes) { return remainder ^ shifted(ones, bytes) ^ ones; }

std::int64_t chunk_bytes_of(std::int64_t file_bytes) {
  constexpr std::int64_t most_chunks = 1 << 18;
  std::int64_t chunk = 1 << 16;
  while (ceil_divide(file_bytes, chunk) > most_chunks) chunk *= 2;  // terminates: 2^63 bytes need chunks of 2^45 bytes
  return chunk;
}

void FileSums::check(const std::filesystem::path& path, std::int64_t chunk, std::span<const std::byte> content) const {
  require<DamageError>(crc32c(content) == crc32cs[static_cast<std::size_t>(chunk)], path.string(), ": bytes ",
                       begin_of(chunk), " to ", begin_of(chunk) + length_of(chunk) - 1,
                       " are not those that were written: their checksum differs from the one in manifest.json. Take "
                       "another checkpoint, or a sound copy of this one");
}

FileSums sums_of(std::string_view content) {
  FileSums sums{.bytes = static_cast<std::int64_t>(content.size()),
                .chunk_bytes = chunk_bytes_of(static_cast<std::int64_t>(content.size())),
                .crc32cs = {}};
  const auto bytes = std::as_bytes(std::span(content));
  for (std::int64_t chunk = 0; sums.begin_of(chunk) < sums.bytes; ++chunk)
    sums.crc32cs.push_back(crc32c(bytes.subspan(static_cast<std::size_t>(sums.begin_of(chunk)),
                                                static_cast<std::size_t>(sums.length_of(chunk)))));
  return sums;
}

void WrittenSums::add(std::int64_t offset, std::span<const std::byte> content) {
  while (!content.empty()) {
    const std::int64_t chunk = offset / chunk_bytes_;
    const std::int64_t chunk_end = std::min((chunk + 1) * chunk_bytes_, bytes_);
    const auto part = content.first(
        static_cast<std::size_t>(std::min(static_cast<std::int64_t>(content.size()), chunk_end - offset)));
    const auto length = static_cast<std::int64_t>(part.size());
    if (shares_.empty() || shares_.back().chunk != chunk)
      shares_.push_back({.chunk = chunk, .bytes = 0, .remainder = 0});
    shares_.back().bytes += length;
    shares_.back().remainder ^= shifted(remainder_of(part), chunk_end - offset - length);
    content = content.subspan(part.size());
    offset += length;
  }
}

FileSums combined(std::string_view path, std::int64_t file_bytes, std::uint32_t file,
                  std::span<const WrittenSums::Share> shares) {
  FileSums sums{.bytes = file_bytes, .chunk_bytes = chunk_bytes_of(file_bytes), .crc32cs = {}};
  sums.crc32cs.resize(static_cast<std::size_t>(ceil_divide(file_bytes, sums.chunk_bytes)));
  std::vector<std::int64_t> written(sums.crc32cs.size());
  for (const WrittenSums::Share& share : shares) {
    if (share.file != file) continue;
    const auto chunk = static_cast<std::size_t>(share.chunk);
    require(share.chunk >= 0 && chunk < written.size(), path, ": a rank wrote a chunk that is not there");
    sums.crc32cs[chunk] ^= share.remainder;
    written[chunk] += share.bytes;
  }
  for (std::size_t chunk = 0; chunk < written.size(); ++chunk) {
    const auto number = static_cast<std::int64_t>(chunk);
    const std::int64_t length = sums.length_of(number);
    require<Error>(written[chunk] == length, path, ": ranks wrote ", written[chunk], " bytes of the ", length,
                   " from byte ", sums.begin_of(number), " on; every byte must be written once");
    sums.crc32cs[chunk] = crc32c_of(sums.crc32cs[chunk], length);
  }
  return sums;
}

void read_checked(const FileDescriptor& file, const std::filesystem::path& path, const FileSums* sums, void* data,
                  std::size_t bytes, std::int64_t offset) {
  if (sums == nullptr) return read_all(file, path, data, bytes, offset);
  auto* to = static_cast<std::byte*>(data);
  std::int64_t left = static_cast<std::int64_t>(bytes);
  std::vector<std::byte> whole;  // a chunk that is needed only in part
  while (left > 0) {
    const std::int64_t chunk = offset / sums->chunk_bytes;
    const std::int64_t begin = sums->begin_of(chunk), length = sums->length_of(chunk);
    if (begin == offset && length <= left) {  // also reads the next chunks that are needed in full
      // Bytes to read before their sum is computed, while they are in the cache
      constexpr std::int64_t in_cache = 1 << 20;
      const std::int64_t together = std::max(in_cache / sums->chunk_bytes, std::int64_t{1});
      const std::int64_t run = std::max(length, std::min(left / sums->chunk_bytes, together) * sums->chunk_bytes);
      read_all(file, path, to, static_cast<std::size_t>(run), offset);
      for (std::int64_t done = 0; done < run; done += sums->chunk_bytes) {
        const std::int64_t each = (offset + done) / sums->chunk_bytes;
        sums->check(path, each, {to + done, static_cast<std::size_t>(sums->length_of(each))});
      }
      to += run, offset += run, left -= run;
      continue;
    }
    whole.resize(static_cast<std::size_t>(length));
    read_all(file, path, whole.data(), whole.size(), begin);
    sums->check(path, chunk, whole);
    const std::int64_t part = std::min(left, begin + length - offset);
    std::memcpy(to, whole.data() + (offset - begin), static_cast<std::size_t>(part));
    to += part, offset += part, left -= part;
  }
}

namespace {

constexpr std::int64_t manifest_version = 1;
constexpr std::int64_t most_manifest_bytes = 64 << 20;
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
    text = read_small_file(path, most_manifest_bytes);
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

std::shared_ptr<const FileSums> sums_for(const std::optional<Manifest>& manifest, const std::filesystem::path& file) {
  return manifest ? std::make_shared<const FileSums>(sums_in(*manifest, file)) : nullptr;
}

void check_config(const std::filesystem::path& folder, const std::optional<Manifest>& manifest) {
  const std::filesystem::path config = folder / config_name;
  if (manifest) check_content(*manifest, config, read_small_file(config, most_config_bytes));
}

}  // namespace fsdp::checkpoint
