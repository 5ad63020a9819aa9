// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/print.hpp>

#include <string>

#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {

void print_text(std::FILE* stream, std::string_view text) {
  const std::string out = printable(text);
  std::fwrite(out.data(), 1, out.size(), stream);
}

void print_sentence(std::string_view text) {
  const std::string line = "tessera: " + sentence(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void print_warning(std::string_view text) { print_sentence("warning: " + std::string(text)); }

}  // namespace fsdp
