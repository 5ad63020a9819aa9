// SPDX-License-Identifier: Apache-2.0
#include "magics.hpp"

#include <algorithm>
#include <array>

#include "strings.hpp"

namespace fsdp {
namespace {

using namespace std::string_view_literals;
using namespace data_advice;

constexpr std::string_view unzip = "unpack it, and give the files in it";

constexpr std::array magics = {
    Magic{"\x1f\x8b\x08"sv, "compressed by gzip", "unpack it (gunzip)"},
    Magic{"\x28\xb5\x2f\xfd"sv, "compressed by zstd", "unpack it (unzstd)"},
    Magic{"\3757zXZ\0"sv, "compressed by xz", "unpack it (unxz)"},
    Magic{"1AY&SY"sv, "compressed by bzip2", "unpack it (bunzip2)", 4},
    Magic{"\x04\x22\x4d\x18"sv, "compressed by lz4", "unpack it (unlz4)"},
    Magic{"PK\x03\x04"sv, "a zip archive, as numpy.savez and torch.save write too", unzip},
    Magic{"7z\xbc\xaf\x27\x1c"sv, "a 7z archive", unzip},
    Magic{"ustar"sv, "a tar archive", unzip, 257},
    Magic{"PAR1"sv, "a Parquet file", as_jsonl},
    Magic{"ARROW1\0\0"sv, "an Arrow file", as_jsonl},
    Magic{"FEA1"sv, "a Feather file", as_jsonl},
    Magic{"SQLite format 3\0"sv, "a database of SQLite", as_jsonl},
    Magic{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file", as_tokens},
    Magic{"\x80\x02]q\0"sv, "a pickle of Python", as_tokens},
    Magic{"\x80\x02}q\0"sv, "a pickle of Python", as_tokens},
    Magic{"\x80\x03]q\0"sv, "a pickle of Python", as_tokens},
    Magic{"\x80\x03}q\0"sv, "a pickle of Python", as_tokens},
    Magic{"\x80\2cnumpy"sv, "a pickle of Python", as_tokens},
    Magic{"\x80\3cnumpy"sv, "a pickle of Python", as_tokens},
    Magic{"\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv, "a pickle of PyTorch", as_tokens},
    Magic{"GGUF"sv, "weights in GGUF", no_data},
    Magic{"\177ELF"sv, "a program (ELF)", no_data},
    Magic{"\x89PNG\r\n\x1a\n"sv, "an image (PNG)", no_data},
    Magic{"%PDF-"sv, "a PDF document", "write its text into a file (pdftotext)"},
    Magic{"MMIDIDX\0\0"sv, "an index of Megatron-LM's tokens", "leave --data-format out"},
    Magic{lfs_pointer_start, "a pointer of Git LFS, without the data", "fetch the data by git lfs pull"},
};

/// Returns whether a text begins with a word, ignoring case.
bool begins_as_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) { return a == ascii_lower(b); });
}

}  // namespace

const Magic* magic_of(std::string_view head) {
  const auto found = std::ranges::find_if(magics, [&](const Magic& magic) {
    return head.size() >= magic.at && head.substr(magic.at).starts_with(magic.bytes);
  });
  return found == magics.end() ? nullptr : &*found;
}

void require_no_html(const std::filesystem::path& path, std::string_view head) {
  head.remove_prefix(std::min(head.find_first_not_of("\xef\xbb\xbf \t\r\n"), head.size()));
  require<InputError>(!begins_as_word(head, "<!doctype html") && !begins_as_word(head, "<html"), path.string(),
                      ": is a page of HTML, such as servers send in place of a file; download the file again");
}

}  // namespace fsdp
