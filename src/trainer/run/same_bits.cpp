// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/same_bits.hpp>

#include <cstddef>

#include <tessera/comm/agreement.hpp>
#include <tessera/fsdp/version.hpp>

namespace fsdp::train {

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, "; ");
  return text;
}

std::string build_text() {
#ifdef __clang__
  constexpr const char* compiler = "clang";
#else
  constexpr const char* compiler = "g++";
#endif
#ifdef TESSERA_BUILD_FLAGS  // src/trainer/CMakeLists.txt
  constexpr const char* flags = TESSERA_BUILD_FLAGS;
#else
  constexpr const char* flags = "unknown flags";
#endif
  return message(version_string, ", ", compiler, " ", __VERSION__, ", ", flags);
}

void agree_on_last_bits(const comm::Ranks& ranks, const RunRecord& mine) {
  std::string text;
  for (const auto& [name, value] : mine) text += message(name, " = ", value, "\n");
  comm::require_same_texts(ranks.monitor(), comm::gather_texts(ranks, text, "last bits"),
                           "ranks compute differently, so that results would depend on which rank has a piece",
                           "give all the same --threads, program, libraries and kind of machine, or leave the pieces "
                           "(:pieces=N of --sharding) out");
}

}  // namespace fsdp::train
