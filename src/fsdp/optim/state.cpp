// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/state.hpp>

#include <array>

namespace fsdp::optim {

std::vector<float> decoded(const StateFormat& format, Tensor<const std::byte> bytes, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  format.decode(bytes, {values.data(), {count}});
  return values;
}

const StateFormat* known_format(std::string_view text) {
  static constexpr std::array all = {&state_format<Plain<float>>, &state_format<Plain<bf16>>,
                                     &state_format<Dynamic8<256>>, &state_format<Dynamic8<256, true>>};
  for (const StateFormat* const format : all)
    if (format->text() == text) return format;
  return nullptr;
}

}  // namespace fsdp::optim
