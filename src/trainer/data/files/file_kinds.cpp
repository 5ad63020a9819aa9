// SPDX-License-Identifier: Apache-2.0
#include "file_kinds.hpp"

#include <algorithm>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

#include "../../../fsdp/core/lfs_pointer.hpp"
#include "../../../fsdp/core/magics.hpp"
#include "../../../text/unicode/code_points.hpp"

namespace fsdp::data {
namespace {

using namespace std::string_view_literals;
using namespace data_advice;

/// Returns the value of a key in the header of a .npy file, which is a Python dict; "?" if the key is absent.
std::string numpy_value(std::string_view header, std::string_view key, std::string_view end) {
  constexpr std::size_t most = 60;
  const std::size_t found = header.find(key);
  if (found == header.npos) return "?";
  const std::string_view rest = header.substr(found + key.size());
  const std::string_view value = rest.substr(0, std::min(rest.find(end), most));
  const bool printable = std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
  return printable ? std::string(value) : "?";
}

FileKind numpy_kind(std::string_view head) {
  const std::string type = numpy_value(head, "'descr': '", "'"), shape = numpy_value(head, "'shape': (", ")");
  return {.name = message("an array of NumPy (dtype ", type, ", shape (", shape, "))"),
          .advice =
              "write its tokens alone, by numpy.load(FILE).astype(numpy.uint16).tofile(\"tokens.bin\"), and say "
              "--data-format u16; or by numpy.uint32, with u32, where tokens are above 65535"};
}

bool is_pickle(std::string_view head) {  // protocols 4 and 5 begin with a frame, whose length has eight bytes
  return (head.starts_with("\x80\x04\x95"sv) || head.starts_with("\x80\x05\x95"sv)) && head.size() > 11 &&
         head.substr(7, 4) == "\0\0\0\0"sv;
}

bool is_safetensors(std::string_view head) {
  return head.size() > 10 && head.substr(8, 2) == "{\""sv && little_endian(head.substr(0, 8)) < 100'000'000;
}

bool is_arrow_stream(std::string_view head) {  // the format of `datasets`: -1, then the length of a flatbuffer
  if (head.size() < 12 || !head.starts_with("\xff\xff\xff\xff"sv)) return false;
  const std::uint64_t length = little_endian(head.substr(4, 4)), root = little_endian(head.substr(8, 4));
  return length > 0 && length % 8 == 0 && length < 10'000'000 && root >= 4 && root < length;
}

/// Returns whether a sample contains integers of twice the width: the upper half of each is 0 (or at most 3, for
/// vocabularies of up to 262,144 tokens), and the lower halves are not.
bool holds_wider(std::string_view sample, int width) {
  constexpr std::size_t fewest_pairs = 16;
  const auto bytes = static_cast<std::size_t>(width);
  const std::size_t pairs = sample.size() / (2 * bytes);
  std::size_t large = 0, present = 0;
  std::uint64_t upper = 0;
  for (; sample.size() >= 2 * bytes; sample.remove_prefix(2 * bytes)) {
    const std::uint64_t low = little_endian(sample.substr(0, bytes));
    present += low > 0;
    large += low > 255;
    upper = std::max(upper, little_endian(sample.substr(bytes, bytes)));
  }
  if (pairs < fewest_pairs) return false;
  return upper == 0 ? present * 2 >= pairs : upper <= 3 && width == 2 && pairs >= 256 && large * 2 >= pairs;
}

/// Returns bytes from the file's beginning, middle and end.
std::string sample_of(const OpenFile& file) {
  constexpr std::int64_t part = 8192;
  const std::int64_t bytes = file.bytes() / 8 * 8;
  const bool whole = bytes <= 3 * part;
  std::vector<std::int64_t> begins = {0};
  if (!whole) begins.insert(begins.end(), {bytes / 16 * 8, bytes - part});
  std::string sample, piece(static_cast<std::size_t>(whole ? bytes : part), '\0');
  for (const std::int64_t begin : begins) {
    file.read(begin, piece);
    sample += piece;
  }
  return sample;
}

}  // namespace

bool is_plain_text(std::string_view head) {
  if (std::ranges::any_of(
          head, [](char c) { return static_cast<unsigned char>(c) < ' ' && (c < '\b' || c > '\r') && c != '\x1b'; }))
    return false;
  head.remove_prefix(text::valid_length(head));
  return head.empty() || text::utf8_step(head).cut;
}

std::optional<FileKind> known_kind(std::string_view head) {
  if (head.starts_with("\x93NUMPY"sv)) return numpy_kind(head);
  if (is_pickle(head)) return FileKind{"a pickle of Python", std::string(as_tokens)};
  if (is_safetensors(head)) return FileKind{"weights in safetensors", std::string(no_data)};
  if (is_arrow_stream(head)) return FileKind{"a stream of Arrow", std::string(as_jsonl)};
  const Magic* const magic = magic_of(head);
  if (magic == nullptr) return std::nullopt;
  // A text may begin with the letters of a magic number; of the known formats, only a Git LFS pointer is text.
  const bool is_pointer = magic->bytes == lfs_pointer_start && head.size() <= 1024;
  if (is_plain_text(head) && !is_pointer) return std::nullopt;
  return FileKind{std::string(magic->name), std::string(magic->advice), is_pointer};
}

void require_raw_tokens(const OpenFile& file, int token_bytes, const std::string& format) {
  constexpr std::size_t enough_text = 64;
  const std::string head = file.head(), name = file.path().string();
  if (const std::optional<FileKind> kind = known_kind(head))
    throw InputError(message("data: ", name, " is ", kind->name, ", and --data-format ", format,
                             " is of files that hold tokens alone; ", kind->advice));
  require<InputError>(head.size() < enough_text || !is_plain_text(head), "data: ", name, " is text, and --data-format ",
                      format, " is of files that hold tokens alone; leave the file or --data-format out");
  if (file.bytes() % (2 * token_bytes) != 0) return;
  const std::string sample = sample_of(file);
  if (!holds_wider(sample, token_bytes)) return;
  const int bits = token_bytes == 2 && !holds_wider(sample, 4) ? 32 : 64;
  throw InputError(message("data: ", name, " holds integers of ", bits, " bits (every second number of ",
                           8 * token_bytes, " bits is zero or next to it), and --data-format is ", format, "; ",
                           bits == 32 ? "say --data-format u32"
                                      : "write it anew by numpy's astype(numpy.uint32) and say --data-format u32"));
}

}  // namespace fsdp::data
