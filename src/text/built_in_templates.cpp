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

/// Roles as plain text, for models whose vocabulary has no tokens for roles.
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

/// The format of Qwen3's own template, adapted for training: each answer has a think block, which may be empty. (The
/// original writes the block only in the last answer of a conversation.)
constexpr std::string_view qwen3 = R"({%- if tools or messages[0].role == 'system' %}
  {{- '<|im_start|>system\n' }}
  {%- if messages[0].role == 'system' %}{{- messages[0].content + ('\n\n' if tools else '') }}{% endif %}
  {%- if tools %}
    {{- '# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function ' }}
    {{- 'signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{% endfor %}
    {{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within ' }}
    {{- '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n' }}
    {{- '</tool_call>' }}
  {%- endif %}
  {{- '<|im_end|>\n' }}
{%- endif %}
{%- set empty_block = '<think>\n\n</think>\n\n' %}
{%- set ns = namespace(asked=false) %}
{%- for message in messages %}
  {%- set content = message.content %}
  {%- if message.role == 'user' %}
    {%- if not (content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
      {%- set ns.asked = true %}
    {%- endif %}
    {{- '<|im_start|>user\n' + content + '<|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {%- set thought = message.reasoning_content or message.reasoning or message.thinking or '' %}
    {%- if '</think>' in content %}
      {%- if thought %}
        {{- raise_exception('an answer has its reasoning twice: under a separate key, and in its content') }}
      {%- endif %}
      {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {%- set thought = thought.strip('\n') %}
    {%- set given = ns.asked and not thought and enable_thinking is defined and enable_thinking is false %}
    {{- '<|im_start|>assistant\n' + (empty_block if given else '') }}
    {%- generation %}
      {%- if ns.asked %}
        {{- ('' if given else '<think>\n' + thought + '\n</think>\n\n') + content.lstrip('\n') }}
      {%- else %}
        {{- content }}
      {%- endif %}
      {%- for tool_call in message.tool_calls or [] %}
        {%- set call = tool_call.function or tool_call %}
        {{- '\n' if content or not loop.first else '' }}
        {{- '<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
        {{- call.arguments if call.arguments is string else call.arguments | tojson }}
        {{- '}\n</tool_call>' }}
      {%- endfor %}
      {{- '<|im_end|>' }}
    {%- endgeneration %}
    {{- '\n' }}
  {%- elif message.role == 'tool' %}
    {{- '' if not loop.first and loop.previtem.role == 'tool' else '<|im_start|>user' }}
    {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
    {{- '' if loop.nextitem is defined and loop.nextitem.role == 'tool' else '<|im_end|>\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n' + (empty_block if enable_thinking is defined and enable_thinking is false else '') }}
{%- endif %})";

}  // namespace

std::optional<std::string> built_in_template(std::string_view name) {
  const std::string_view own = name == "chatml"   ? chatml
                               : name == "llama3" ? llama3
                               : name == "plain"  ? plain
                               : name == "qwen3"  ? qwen3
                                                  : "";
  if (own.empty()) return std::nullopt;
  return std::string(order).append(own);
}

}  // namespace fsdp::text
