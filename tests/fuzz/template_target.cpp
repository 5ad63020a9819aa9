// SPDX-License-Identifier: Apache-2.0
// A chat template, and the variables it is rendered with.
#include <ctime>

#include <tessera/text/chat_template.hpp>

#include "target.hpp"

FUZZ_TARGET(template) {
  const auto parts = fsdp::fuzz::parts_of(input);
  const std::string_view text = parts.first, variables = parts.second;
  fsdp::fuzz::refused_or_read([&] {
    const fsdp::text::ChatTemplate parsed = fsdp::text::ChatTemplate::parse(text, "template");
    std::string json = R"({"messages":[{"role":"user","content":"Hi <b>"},{"role":"assistant","content":"Yes\n"}],)"
                       R"("tools":[{"name":"f","of":{"a":[1,2.5,null,true]}}],"bos_token":"<s>","x":)";
    json += variables.empty() ? "null" : std::string(variables);
    parsed.render(json + "}", std::tm{});
  });
}
