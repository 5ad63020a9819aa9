// SPDX-License-Identifier: Apache-2.0
#include "input_files.hpp"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>

#include "../../../fsdp/core/magics.hpp"
#include "../../../text/unicode/code_points.hpp"
#include "../formats/token_files.hpp"

namespace fsdp::data {
namespace {

using Path = std::filesystem::path;

/// Lists the files below a folder.
class Listing {
 public:
  explicit Listing(InputFiles& into) : into_(into) {}

  void read(const Path& folder) {
    std::vector<Path> links;  // links to folders; read last, so that a folder is listed under its own path
    walk(folder, links);
    std::ranges::sort(links);
    for (std::size_t i = 0; i < links.size(); ++i) {
      const Path link = links[i];  // a copy, since walk() appends to `links`
      if (!walk(link, links)) into_.left_out.add("links to folders that are read already", link);
    }
    std::ranges::sort(files_, {}, [](const Path& path) -> const std::string& { return path.native(); });
    for (Path& file : files_) into_.files.push_back({.path = std::move(file)});
  }

 private:
  /// Returns false for a folder that was already walked.
  bool walk(const Path& folder, std::vector<Path>& links) {  // NOLINT(misc-no-recursion): as deep as the folders
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) throw_errno(folder, "listed");
    if (!walked_.emplace(status.st_dev, status.st_ino).second) return false;
    std::vector<std::filesystem::directory_entry> entries;
    try {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) entries.push_back(entry);
    } catch (const std::filesystem::filesystem_error& error) {
      throw InputError(message("data: ", folder.string(), " cannot be listed: ", error.what()));
    }
    std::ranges::sort(entries, {}, [](const auto& entry) -> const std::string& { return entry.path().native(); });
    for (const std::filesystem::directory_entry& entry : entries) take(entry, links);
    return true;
  }

  void take(const std::filesystem::directory_entry& entry, std::vector<Path>& links) {  // NOLINT(misc-no-recursion)
    const std::string name = entry.path().filename().string();
    std::error_code error;
    const std::filesystem::file_status status = entry.status(error);
    if (name.starts_with('.')) return into_.left_out.add("hidden", entry.path());
    if (status.type() == std::filesystem::file_type::not_found || error == std::errc::too_many_symbolic_link_levels)
      return into_.left_out.add("links to nothing", entry.path());
    if (error) throw InputError(message("data: ", entry.path().string(), " cannot be read: ", error.message()));
    if (std::filesystem::is_directory(status)) {
      if (entry.is_symlink(error))
        links.push_back(entry.path());
      else
        walk(entry.path(), links);
    } else if (name == checkpoint::lock_name) {  // created by a run whose --checkpoint-dir is this folder
      into_.left_out.add("locks of runs", entry.path());
    } else if (name.ends_with('~') || (name.starts_with('#') && name.ends_with('#')) || name.ends_with(".swp") ||
               name.ends_with(".tmp") || name.ends_with(".bak") || name.ends_with(".orig")) {
      into_.left_out.add("leftovers of editors", entry.path());
    } else if (!std::filesystem::is_regular_file(status)) {
      into_.left_out.add("neither files nor folders", entry.path());
    } else {
      files_.push_back(entry.path());
    }
  }

  InputFiles& into_;
  std::vector<Path> files_;
  std::set<std::pair<dev_t, ino_t>> walked_;
};

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

bool is_arrow_stream(std::string_view head) {  // the format of `datasets`: -1, then the length of a flatbuffer
  if (head.size() < 12 || !head.starts_with("\xff\xff\xff\xff"sv)) return false;
  const std::uint64_t length = little_endian(head.substr(4, 4)), root = little_endian(head.substr(8, 4));
  return length > 0 && length % 8 == 0 && length < 10'000'000 && root >= 4 && root < length;
}

/// Returns whether a sample contains integers of twice the width: the upper half of each is 0 (or at most 3, for
/// vocabularies of up to 262,144 tokens), and the lower halves are not.
bool has_wider_integers(std::string_view sample, int width) {
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

InputFiles input_files(std::span<const std::filesystem::path> paths) {
  InputFiles found;
  for (const Path& path : paths) {
    if (const std::optional<Path> index = megatron_index(path)) {
      found.files.push_back({.path = *index, .named = true});
      continue;
    }
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    require<InputError>(status.type() != std::filesystem::file_type::not_found, "data: ", path.string(),
                        ": no such file or folder");
    require<InputError>(!error, "data: ", path.string(), ": cannot be read: ", error.message());
    if (std::filesystem::is_directory(status)) {
      Listing(found).read(path);
    } else {
      require<InputError>(std::filesystem::is_regular_file(status), "data: ", path.string(),
                          ": neither a file nor a folder");
      found.files.push_back({.path = path, .named = true});
    }
  }
  // PREFIX.idx stands for its PREFIX.bin, which must not be read twice.
  std::erase_if(found.files, [&](const InputFile& file) {
    if (file.path.extension() != ".bin") return false;
    const std::optional<Path> index = megatron_index(file.path);
    return index && std::ranges::find(found.files, *index, &InputFile::path) != found.files.end();
  });
  return found;
}

OpenFile::OpenFile(const std::filesystem::path& path)
    : path_(path), file_(open_file(path, O_RDONLY, "read")), bytes_(size_of(file_, path)) {}

std::string OpenFile::head() const {
  constexpr std::int64_t looked_at = 8192;
  std::string head(static_cast<std::size_t>(std::min(looked_at, bytes_)), '\0');
  read(0, head);
  return head;
}

std::uint64_t hashed_state(std::uint64_t hash, const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) throw_errno(file, "read");
  std::error_code error;
  hash = hashed(hash, std::filesystem::weakly_canonical(file, error).native());
  hash = hashed(hash, std::int64_t{status.st_size});
  return hashed(hash, std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec);
}

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
  if (head.size() > 10 && head.substr(8, 2) == "{\""sv && little_endian(head.substr(0, 8)) < 100'000'000)
    return FileKind{"weights in safetensors", std::string(no_data)};
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
  if (!has_wider_integers(sample, token_bytes)) return;
  const int bits = token_bytes == 2 && !has_wider_integers(sample, 4) ? 32 : 64;
  throw InputError(message("data: ", name, " holds integers of ", bits, " bits (every second number of ",
                           8 * token_bytes, " bits is zero or next to it), and --data-format is ", format, "; ",
                           bits == 32 ? "say --data-format u32"
                                      : "write it anew by numpy's astype(numpy.uint32) and say --data-format u32"));
}

}  // namespace fsdp::data
