// SPDX-License-Identifier: Apache-2.0
#include "controls.hpp"

#include <cstdlib>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "block.hpp"
#include "emulation.hpp"

namespace fsdp::device::cuda::emulation {
namespace {

constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();

std::uint64_t seed_of_environment() {
  const char* const text = std::getenv("TESSERA_EMULATION_SEED");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

struct Controls {
  std::uint64_t seed = seed_of_environment();
  std::uint32_t most_blocks = unlimited;
  std::string left_out;
  std::set<std::pair<const char*, unsigned>> sites;
};
Controls& controls() {
  static Controls made;
  return made;
}

std::string text_of(std::string_view file, unsigned line) {
  return message(file.substr(file.rfind('/') + 1), ":", line);
}

}  // namespace

void seed_order(std::uint64_t seed) { controls().seed = seed; }
std::uint64_t seed() { return controls().seed; }
void limit_blocks(std::uint32_t most) { controls().most_blocks = most == 0 ? unlimited : most; }
std::uint32_t most_blocks() { return controls().most_blocks; }

void leave_out(const std::string& site) { controls().left_out = site; }
std::vector<std::string> take_sites() {
  std::set<std::string> texts;
  for (const auto& [file, line] : std::exchange(controls().sites, {})) texts.insert(text_of(file, line));
  return {texts.begin(), texts.end()};
}

bool is_left_out(const Site& site) {
  Controls& own = controls();
  if (now().thread == 0) own.sites.emplace(site.file, site.line);
  return !own.left_out.empty() && own.left_out == text_of(site.file, site.line);
}

}  // namespace fsdp::device::cuda::emulation
