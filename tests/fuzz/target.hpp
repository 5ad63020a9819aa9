// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fuzz targets: functions that read an untrusted input and must end with a result or an InputError.
///
/// `tests/long.sh fuzz` builds a libFuzzer program for each; tests_fuzz replays the inputs in corpus/<target>. To
/// add one: a file <name>_target.cpp with FUZZ_TARGET(<name>), and inputs in corpus/<name>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>

namespace fsdp::fuzz {

using Target = void (*)(std::string_view input);

/// All targets by their names.
inline std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

struct Registered {
  Registered(const char* name, Target target) { targets().emplace(name, target); }
};

/// Runs a reader and catches InputError and similar errors; other exceptions propagate.
template <class Read>
void refused_or_read(const Read& read) {
  try {
    read();
  } catch (const InputError& error) {
    if (std::string_view(error.what()).size() > 100'000) throw LogicError("an error of more than 100,000 bytes");
  }
}

/// Splits an input of two parts at its first line "=====".
inline std::pair<std::string_view, std::string_view> parts_of(std::string_view input) {
  constexpr std::string_view mark = "\n=====\n";
  const std::size_t at = input.find(mark);
  if (at == input.npos) return {input, {}};
  return {input.substr(0, at), input.substr(at + mark.size())};
}

/// Writes a file in a folder of this process, for inputs that are read as files. Returns its path.
inline std::filesystem::path written(const std::string& name, std::string_view content) {
  static const TemporaryFolder folder(std::filesystem::temp_directory_path(), "tessera-fuzz");
  const std::filesystem::path path = folder.path() / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

}  // namespace fsdp::fuzz

#ifdef TESSERA_LIBFUZZER
#define FUZZ_TARGET(name)                                                             \
  static void fuzz_##name(std::string_view input);                                    \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    fuzz_##name(std::string_view(reinterpret_cast<const char*>(data), size));         \
    return 0;                                                                         \
  }                                                                                   \
  static void fuzz_##name(std::string_view input)
#else
#define FUZZ_TARGET(name)                                                    \
  static void fuzz_##name(std::string_view input);                           \
  static const fsdp::fuzz::Registered registered_##name(#name, fuzz_##name); \
  static void fuzz_##name(std::string_view input)
#endif
