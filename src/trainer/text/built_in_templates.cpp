// SPDX-License-Identifier: Apache-2.0
#include "built_in_templates.hpp"

namespace fsdp::text {
namespace {

/// The beginning of each template: raises an exception if messages are in a wrong order.
constexpr std::string_view order = R"({%- for message in messages %}
  {%- if message.role == 'system' and not loop.first %}
    {{- raise_exception('the role system stands behind other messages; put it first') }}
  {%- endif %}
  {%- if message.role == 'assistant' and (loop.first or loop.previtem.role == 'assistant') %}
    {{- raise_exception('the role assistant answers nothing; put a message of the role user before it') }}
  {%- endif %}
{%- endfor %}
)";

/// OpenAI's format, which Qwen, SmolLM and many others use.
constexpr std::string_view chatml = R"({%- for message in messages %}
  {{- '<|im_start|>' + message.role + '\n' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
  {%- else %}
    {{- message.content + '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

/// Llama 3's headers.
constexpr std::string_view llama3 = R"({{- bos_token if bos_token else '<|begin_of_text|>' }}
{%- for message in messages %}
  {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content | trim + '<|eot_id|>' }}{% endgeneration %}
  {%- else %}
    {{- message.content | trim + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";

/// Plain words, for models whose vocabulary has no tokens for roles.
constexpr std::string_view plain = R"({{- bos_token if bos_token else '' }}
{%- for message in messages %}
  {%- if message.role == 'system' %}
    {{- message.content + '\n\n' }}
  {%- elif message.role == 'user' %}
    {{- 'User: ' + message.content + '\n' }}
  {%- elif message.role == 'assistant' %}
    {{- 'Assistant:' }}
    {%- generation %}{{ ' ' + message.content + (eos_token if eos_token else '') }}{% endgeneration %}{{ '\n' }}
  {%- else %}
    {{- raise_exception('the role ' + message.role + ' is not known to this template; it has system, user and assistant') }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %})";

}  // namespace

std::optional<std::string> built_in_template(std::string_view name) {
  const std::string_view own = name == "chatml" ? chatml : name == "llama3" ? llama3 : name == "plain" ? plain : "";
  if (own.empty()) return std::nullopt;
  return std::string(order).append(own);
}

}  // namespace fsdp::text
