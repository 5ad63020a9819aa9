// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera_bench_foreign use|unet|mlp [--option NUMBER]...`: see options.hpp and bench/README.md.
#include <malloc.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include <tessera/fsdp/core/error.hpp>

#include "options.hpp"

namespace {

using fsdp::InputError;
using fsdp::bench::ForeignOptions;

const std::map<std::string, void (*)(const ForeignOptions&)> benches = {
    {"use", fsdp::bench::measure_use}, {"unet", fsdp::bench::measure_unet}, {"mlp", fsdp::bench::measure_mlp}};
const std::map<std::string, std::int64_t ForeignOptions::*> numbers = {
    {"--repeats", &ForeignOptions::repeats},   {"--units", &ForeignOptions::units},
    {"--pictures", &ForeignOptions::pictures}, {"--layers", &ForeignOptions::layers},
    {"--width", &ForeignOptions::width},       {"--rows", &ForeignOptions::rows},
    {"--ranks", &ForeignOptions::ranks}};

std::int64_t number_of(const std::string& option, const char* text) {
  std::int64_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, number);
  fsdp::require<InputError>(error == std::errc() && stopped == end && number > 0, option, " is '", text,
                            "'; it takes a number above 0");
  return number;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto bench = argc < 2 ? benches.end() : benches.find(argv[1]);
  fsdp::require<InputError>(bench != benches.end(), "usage: tessera_bench_foreign use|unet|mlp [--option NUMBER]...");
  // Freed memory stays with the process: else the foreign loop's time is that of page faults, which hide the library's.
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ForeignOptions options;
  for (int i = 2; i < argc; i += 2) {
    const auto option = numbers.find(argv[i]);
    fsdp::require<InputError>(option != numbers.end() && i + 1 < argc, "option '", argv[i],
                              "' is unknown or lacks its number; see bench/foreign/options.hpp");
    options.*option->second = number_of(option->first, argv[i + 1]);
  }
  bench->second(options);
  return 0;
} catch (const fsdp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
