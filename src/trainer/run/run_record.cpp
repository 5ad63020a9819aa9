// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/run_record.hpp>

#include <cstddef>

#include <tessera/fsdp/version.hpp>

#include "../../fsdp/core/strings.hpp"

namespace fsdp::train {

std::string tiles_text(std::string_view plans) {
  std::string text;
  for (const std::string_view line : split_at(plans, '\n')) {
    const std::size_t kept = line.find(" kept");
    const std::string_view tiles = kept == std::string_view::npos ? line : line.substr(0, line.rfind(", ", kept));
    if (!tiles.empty()) text.append(text.empty() ? "" : "; ").append(tiles);
  }
  return text;
}

std::string build_text() {
#ifdef __clang__
  constexpr const char* compiler = "clang";
#else
  constexpr const char* compiler = "g++";
#endif
#ifdef TESSERA_BUILD_FLAGS  // set in src/trainer/CMakeLists.txt
  constexpr const char* flags = TESSERA_BUILD_FLAGS;
#else
  constexpr const char* flags = "unknown flags";
#endif
  return message(version_string, ", ", compiler, " ", __VERSION__, ", ", flags);
}

template std::string detail::reduced_sooner(const decltype(RunTimeAny::strategy)&);

void agree_on_last_bits(const comm::Ranks& ranks, const RunRecord& mine) {
  std::string text;
  for (const auto& [name, value] : mine) text += message(name, " = ", value, "\n");
  comm::require_same_texts(ranks.monitor(), comm::gather_texts(ranks, text, "last bits"),
                           "ranks compute differently, so that results would depend on which rank has a piece",
                           "give all the same --threads, program, libraries and kind of machine, or leave the pieces "
                           "(:pieces=N of --sharding) out");
}

}  // namespace fsdp::train
