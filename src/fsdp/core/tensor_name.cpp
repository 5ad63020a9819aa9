// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/parameter.hpp>

#include <algorithm>
#include <cstddef>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "utf8.hpp"

namespace fsdp {

void require_tensor_name(std::string_view name, std::string_view where) {
  constexpr std::size_t most_bytes = 512;
  const bool control = std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
  require<InputError>(!name.empty() && name.size() <= most_bytes && !control && is_utf8(name), where,
                      ": a tensor's name must have 1 to ", most_bytes,
                      " bytes of UTF-8 and no control characters; found \"", shortened(name), "\"");
  require<InputError>(name != "__metadata__", where, ": no tensor can be called \"", name,
                      "\", which is the key of a safetensors file's metadata; take another name");
}

}  // namespace fsdp
