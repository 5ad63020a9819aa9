// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/weight_files.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>

#include "../core/magics.hpp"
#include "../core/paths.hpp"
#include "../core/strings.hpp"
#include "manifest.hpp"

namespace fsdp::checkpoint {
namespace {

using std::filesystem::path;

/// The kinds of files that may contain weights, the most informative ones first.
enum class Form { shard, safetensors, adapters, other, pointer, part };

struct Found {
  Form form;
  std::string name;  ///< path relative to the folder

  friend auto operator<=>(const Found&, const Found&) = default;
};

/// Whether a file name has the form of a shard's, such as "model-00001-of-00002.safetensors".
bool names_shard(std::string_view name) {
  const std::size_t of = name.find("-of-");
  const auto digit = [&](std::size_t at) {
    return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at]));
  };
  return of != name.npos && of > 0 && digit(of - 1) && digit(of + 4);
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> endings) {
  return std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); });
}

/// Whether a lower-case file name is one that programs use for weights.
bool names_weights(const std::string& name) {
  static constexpr std::array within = {".safetensors", ".gguf", ".ggml", ".msgpack", ".ckpt", ".distcp", ".onnx"};
  static constexpr std::array before = {"pytorch_model", "consolidated", "tf_model", "flax_model"};
  return std::ranges::any_of(within, [&](const char* part) { return name.find(part) != name.npos; }) ||
         ends_with_any(name, {".pt", ".pth", ".h5", ".hdf5", ".npz", ".nemo", ".tflite", ".llamafile"}) ||
         std::ranges::any_of(before, [&](const char* part) { return name.starts_with(part); }) ||
         (name.ends_with(".bin") && name.find("model") != name.npos);
}

/// Whether a file name is one that browsers and downloaders use for incomplete downloads.
bool names_part(const std::string& name) {
  return ends_with_any(name, {".part", ".partial", ".incomplete", ".download", ".aria2"});
}

/// Whether a Git LFS pointer with this file name stands for a file other than weights.
bool names_text_or_picture(const std::string& name) {
  return ends_with_any(name, {".json", ".jsonl", ".txt", ".md", ".model", ".tiktoken", ".jinja", ".py", ".csv",
                              ".parquet", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".pdf", ".mp4"});
}

/// Returns a file's first bytes; nothing if it cannot be read.
std::optional<std::string> beginning_of(const path& file) {
  try {
    const FileDescriptor opened = open_file(file, O_RDONLY | O_NOCTTY | O_NONBLOCK, "opened");
    std::string bytes(64, '\0');
    const ssize_t got = ::pread(opened.get(), bytes.data(), bytes.size(), 0);
    if (got < 0) return std::nullopt;
    bytes.resize(static_cast<std::size_t>(got));
    return bytes;
  } catch (const FileError&) {
    return std::nullopt;
  }
}

/// Whether a .bin file starts like a file of PyTorch or llama.cpp, or may be one because it is empty or cannot be read.
/// Other .bin files often contain tokens.
bool may_hold_weights(const std::optional<std::string>& beginning) {
  using namespace std::string_view_literals;
  static constexpr std::array starts = {"PK\3\4"sv, "\x80\2\x8a\n"sv, "GGUF"sv, "lmgg"sv, "tjgg"sv, "fmgg"sv};
  return !beginning || beginning->empty() ||
         std::ranges::any_of(starts, [&](std::string_view start) { return beginning->starts_with(start); });
}

std::optional<Form> form_of(const path& file, bool reads) {
  const std::string name = ascii_lower(file.filename().string());
  if (name.starts_with("adapter_model.")) return Form::adapters;
  if (name.ends_with(".safetensors")) return names_shard(name) ? Form::shard : Form::safetensors;
  // A browser's partial download, whose name may have no other hint
  if (name.ends_with(".crdownload")) return Form::part;
  if (names_weights(name)) return names_part(name) ? Form::part : Form::other;
  const bool bin = name.ends_with(".bin") && name != "training_args.bin";  // training_args.bin is a pickle of options
  if (!reads || names_text_or_picture(name)) return std::nullopt;
  std::error_code error;
  if (!bin && !std::filesystem::is_regular_file(file, error)) return std::nullopt;
  const std::optional<std::string> beginning = beginning_of(file);
  if (beginning && beginning->starts_with(lfs_pointer_start)) return Form::pointer;
  return bin && may_hold_weights(beginning) ? std::optional(Form::other) : std::nullopt;
}

/// Adds the weight files and folders inside `folder`. `before`: prefix of their paths, relative to the model's folder.
/// `reads`: also looks at the contents of files.
void look(const path& folder, const std::string& before, bool reads, std::vector<Found>& found,
          std::vector<path>& folders) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::error_code gone;
    if (entry.is_directory(gone)) {
      folders.push_back(entry.path());
    } else if (const std::optional<Form> form = form_of(entry.path(), reads)) {
      found.push_back({*form, before + entry.path().filename().string()});
    }
  }
  require<InputError>(!error, folder.string(), ": cannot be listed: ", error.message());
}

/// Whether a path contains the folder of a run's checkpoint, such as runs/a/step-00000100.
bool is_in_a_step(const path& folder) {
  return std::ranges::any_of(folder, [](const path& part) { return part.string().starts_with("step-"); });
}

/// Adds the incomplete downloads of huggingface_hub.
void find_partial_downloads(const path& folder, std::vector<Found>& found) {
  const path parts = path(".cache") / "huggingface" / "download";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder / parts, error))
    if (entry.path().extension() == ".incomplete")
      found.push_back({Form::part, (parts / entry.path().filename()).string()});
}

/// Returns the end of the error's sentence, after the file's name.
std::string advice(const Found& found) {
  if (found.form <= Form::safetensors && found.name.find('/') != found.name.npos)
    return message(" but no ", model_name, " of its own; name the folder inside, or move its files here");
  switch (found.form) {
    case Form::shard: return message(" but no ", index_name, ", which says what is in the shards; download that, too");
    case Form::safetensors:
      return message(" but no ", model_name, ", which is read; download that, or give the file its name");
    case Form::adapters: return ", adapters; give the folder of their model, and this one for its adapters";
    case Form::pointer: return ", a Git LFS pointer; fetch the files by `git lfs pull`";
    case Form::part: return ", a part of a download; download the folder again";
    case Form::other: break;
  }
  return message(", a form of weights that is not read; download ", model_name,
                 ", or convert it with transformers (from_pretrained, save_pretrained)");
}

}  // namespace

bool holds_weights(const path& folder) {
  if (entry_exists(folder / model_name) || entry_exists(folder / index_name)) return true;
  std::vector<Found> found;
  std::vector<path> folders;
  look(folder, "", true, found, folders);
  find_partial_downloads(folder, found);
  constexpr int most_levels = 3;
  for (int level = 1; found.empty() && level <= most_levels; ++level) {
    std::vector<path> inside;
    for (const path& inner : folders) {
      const path relative = inner.lexically_relative(folder);
      const bool hidden = inner.filename().string().starts_with('.');
      if (!hidden && (level == 1 || !is_in_a_step(relative)))
        look(inner, relative.string() + "/", false, found, inside);
    }
    folders = std::move(inside);
  }
  if (found.empty()) return false;
  const Found& first = *std::ranges::min_element(found);
  throw InputError(message(folder.string(), ": holds ", first.name, advice(first)));
}

}  // namespace fsdp::checkpoint
