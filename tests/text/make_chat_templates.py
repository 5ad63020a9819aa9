#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes chat_templates.json: chat templates in the manner of eight published families, conversations, and the text (with the
byte spans of its generation blocks) that the Python package `jinja2` makes of each pair; then small templates, one for each
feature of the language. The environment is the one that the package `transformers` renders chat templates in (5.23.0 makes the same).

usage: make_chat_templates.py        needs: pip install jinja2 (3.1.6 with Python 3.11 wrote the file that is kept)

An entry that fails has "error" and "exception" (the class) in place of "text". A "TemplateError" comes from raise_exception, and its
message is the template's own; the other messages are Python's, and no more than that there is an error can be asked for.
"""
import datetime
import json
import platform
import re
import warnings
from pathlib import Path

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

TARGET = Path(__file__).resolve().parent / "chat_templates.json"
NOW = datetime.datetime(2024, 7, 26, 12, 34, 56)
TOKENS, TEMPLATES = {}, {}


class Generation(Extension):
    """{% generation %}...{% endgeneration %}: prints its body, and keeps where in the text it lies."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

    def note(self, caller):
        text = caller()
        begin = size(self.environment.pieces)
        self.environment.spans.append([begin, begin + len(text.encode())])
        return text


def size(pieces):
    return sum(len(piece.encode()) for piece in pieces)


def fail(message):
    raise jinja2.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(text, variables):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=fail, strftime_now=NOW.strftime)
    environment.pieces, environment.spans = [], []
    try:
        for piece in environment.from_string(text).generate(**variables):
            environment.pieces.append(piece)
    except Exception as error:  # whatever the template does wrong
        return {"error": str(error), "exception": type(error).__name__}
    return {"text": "".join(environment.pieces), "spans": environment.spans}


def family(name, begin, end, text):
    TEMPLATES[name] = text
    TOKENS[name] = {"bos_token": begin, "eos_token": end}


family("chatml", "", "<|im_end|>", r"""{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"""
       r"""{{ '<|im_start|>system\nYou answer with care.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + """
       r"""message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""")
family("llama3", "<|begin_of_text|>", "<|eot_id|>", r"""{% set turns = messages %}{% for turn in turns %}{% set part = '<|start_header_id|>' + """
       r"""turn['role'] + '<|end_header_id|>\n\n'+ turn['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set part = bos_token + part """
       r"""%}{% endif %}{{ part }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""")
family("llama31", "<|begin_of_text|>", "<|eot_id|>", r"""{{- bos_token }}
{%- if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% else %}{% set date_string = "01 Jan 2024" %}{% endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{#- The system's words leave the list. #}
{%- if messages[0]['role'] == 'system' %}{%- set instructions = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set instructions = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}
{%- if builtin_tools is defined %}{{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}{%- endif %}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- 'Functions, called by {"name": ..., "parameters": {...}}:\n\n' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
{%- endif %}
{{- instructions }}{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}{%- set opening = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
    {%- else %}{{- raise_exception("No first user message to put the tools in") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Answer with a call of one of these functions.\n\n" }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
    {{- opening + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("One tool call at once, not " ~ message.tool_calls|length) }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and call.name in builtin_tools %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- "<|python_tag|>" + call.name + ".call(" }}
            {%- for key, value in call.arguments | items %}
                {{- key + '="' ~ value ~ '"' }}
                {%- if not loop.last %}{{- ", " }}{%- endif %}
            {%- endfor %}
            {{- ")" }}
        {%- else  %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{{- '{"name": "' + call.name + '", ' }}
            {{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
        {%- endif %}
        {{- "<|eom_id|>" if builtin_tools is defined else "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
""")
family("mistral", "<s>", "</s>", r"""{%- if messages[0]["role"] == "system" %}{%- set instructions = messages[0]["content"] %}
    {%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set asked = rest | selectattr("role", "equalto", "user") | list %}{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in rest %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Roles must go user/assistant/user/assistant/... after an optional system message") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == asked[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{{- "]" if loop.last else ", " }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and instructions is defined %}{{- "[INST] " + instructions + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function|tojson %}{{- out[:-1] }}
            {%- if not call.id is defined or call.id|length != 9 %}{{- raise_exception("A tool call's id has 9 letters or digits!") }}
            {%- endif %}
            {{- ', "id": "' + call.id + '"}' }}{{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- set content = message.content.content if message.content is mapping and message.content.content is defined else message.content %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {%- if not message.tool_call_id is defined or message.tool_call_id|length != 9 %}
            {{- raise_exception("A tool result's id has 9 letters or digits!") }}
        {%- endif %}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user, assistant and tool after the system message: " + message["role"]) }}
    {%- endif %}
{%- endfor %}
""")
family("gemma", "<bos>", "<eos>", r"""{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set before = messages[0]['content'] + '\n\n' -%}
    {%- else -%}{%- set before = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}{%- set turns = messages[1:] -%}
{%- else -%}{%- set before = "" -%}{%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("Roles must go user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if (message['role'] == 'assistant') else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (before if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception("Neither text nor parts") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
""")
family("qwen3", "", "<|im_end|>", r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n\nThe functions, within <tools></tools>:\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools>\n\nCall as <tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string
          and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}{%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and thought)) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- content }}{{- '\n</tool_response>' }}
        {%- if loop.last or (loop.nextitem.role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
""")
family("phi3", "<s>", "<|endoftext|>", r"""{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}""")
family("phi4", "<|endoftext|>", "<|im_end|>", r"""{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and """
       r"""message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + """
       r"""'<|end|>' }}{% elif (message.role == "assistant") %}{{"<|im_start|>assistant<|im_sep|>"}}{% generation %}{{message["content"] + """
       r""""<|im_end|>"}}{% endgeneration %}{% else %}{{ '<|im_start|>' ~ message.role ~ '<|im_sep|>' ~ message.content ~ '<|im_end|>' }}"""
       r"""{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}""")
family("deepseek", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", r"""{% if not add_generation_prompt is defined %}"""
       r"""{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=true, is_tool=false, outputs=0, system='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first %}{% set ns.system = ns.system + message['content'] %}"""
       r"""{% set ns.is_first = false %}{%- else %}{% set ns.system = ns.system + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}
{{- bos_token }}{{ ns.system }}
{%- for message in messages %}
  {%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}
  {%- if message['role'] == 'assistant' and 'tool_calls' in message and message['tool_calls'] %}
    {%- set ns.is_tool = false -%}
    {%- for tool in message['tool_calls'] -%}
      {%- if loop.first %}{{'<｜Assistant｜>' + (message['content'] or '') + '<｜tool▁calls▁begin｜>'}}{% else %}{{'\n'}}{% endif -%}
      {{'<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n'}}
      {{- tool['function']['arguments'] if tool['function']['arguments'] is string else tool['function']['arguments'] | tojson -}}
      {{'\n' + '```' + '<｜tool▁call▁end｜>'}}
      {%- if loop.last %}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{% endif -%}
    {%- endfor %}
  {%- elif message['role'] == 'assistant' %}
    {%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}
    {%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
      {{- '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}
  {%- endif %}
  {%- if message['role'] == 'tool' %}
    {%- if not ns.is_tool %}{{'<｜tool▁outputs▁begin｜>'}}{% set ns.outputs = 0 %}{%- endif %}{%- set ns.is_tool = true -%}
    {{ ('\n' if ns.outputs > 0 else '') + '<｜tool▁output▁begin｜>' ~ message['content'] ~ '<｜tool▁output▁end｜>'}}
    {%- set ns.outputs = ns.outputs + 1 -%}
  {%- endif %}
{%- endfor -%}
{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\n'}}{% endif %}""")
family("smollm3", "", "<|im_end|>", r"""{#  Options and their defaults  #}
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- macro kind(spec, open="[", close="]") -%}
    {%- set names = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} -%}
    {%- if spec.type is string and spec.type in names -%}{{- names[spec.type] -}}
    {%- elif spec.type is defined and spec.type == "array" -%}{{- "list" ~ open + kind(spec['items'], open=open, close=close) + close -}}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties is defined -%}
            {{- "{" -}}{%- for key, value in spec.properties.items() -%}{{- key ~ ": " ~ kind(value, open, close) -}}
            {%- if key not in spec.required|default([]) -%}?{%- endif -%}{{- ", " if not loop.last -}}{%- endfor -%}{{- "}" -}}
        {%- else -%}dict{%- endif -%}
    {%- elif spec.type is iterable and spec.type is not string -%}
        {%- for t in spec.type -%}{{- kind({"type": t}) -}}{%- if not loop.last -%}|{%- endif -%}{%- endfor -%}
    {%- else -%}Any{%- endif -%}
{%- endmacro -%}
{%- if messages[0].role == "system" -%}
  {%- set instructions = messages[0].content -%}
  {%- if "/no_think" in instructions -%}{%- set mode = "/no_think" -%}{%- elif "/think" in instructions -%}{%- set mode = "/think" -%}{%- endif -%}
  {%- set custom = instructions.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|im_start|>system\n" -}}
{%- if custom is defined and "/system_override" in custom -%}{{- custom.replace("/system_override", "").rstrip() -}}{{- "<|im_end|>\n" -}}
{%- else -%}
  {{- "## Metadata\n\n" -}}{{- "Date: " ~ strftime_now("%d %B %Y") ~ "\n" -}}
  {{- "Reasoning Mode: " + mode + "\n\n" -}}
  {%- if custom -%}{{- custom + "\n\n" -}}{%- else -%}{{- "You help" ", and think.\n\n" -}}{%- endif -%}
  {%- if xml_tools or python_tools or tools -%}
    {{- "### Tools\n\n" -}}
    {%- if xml_tools or tools -%}
      {%- set ns = namespace(text="<tools>\n") -%}
      {%- for tool in (xml_tools or tools) -%}
        {%- set ns.text = ns.text ~ (tool | string) ~ "\n" -%}
        {%- set ns.text = ns.text + "# " + tool.function.name + "(" + kind(tool.function.parameters) + ")\n" -%}
      {%- endfor -%}
      {{- ns.text + "</tools>" + "\n\n" -}}
    {%- endif -%}
    {%- for tool in python_tools or [] -%}{{ tool if tool is string else tool | tojson(indent=4) }}
{% endfor %}
  {%- endif -%}
  {{- "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages if message.role != "system" -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}{{ "<|im_start|>" + message.role + "\n"  + content + "<|im_end|>\n" }}
    {%- elif message.role == "assistant" -%}
        {{- "<|im_start|>assistant\n" -}}
        {% generation %}
        {%- if mode == "/think" -%}{{ content.lstrip("\n") + "<|im_end|>\n" }}
        {%- else -%}{{ "<think>\n\n</think>\n" + content.split("</think>")|last|trim + "<|im_end|>\n" }}
        {%- endif -%}
        {% endgeneration %}
    {%- elif message.role == "tool" -%}{{ "<|im_start|>" + "user\n"  + content|default("none", true) + "<|im_end|>\n" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<|im_start|>assistant\n" ~ ("" if mode == "/think" else "<think>\n\n</think>\n") }}{%- endif -%}
""")
family("zephyr", "<s>", "</s>", r"""{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{% generation %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endgeneration %}
{% else %}
    {{ raise_exception('Unknown role: ' ~ message['role']|tojson) }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""")


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, identity):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def function(name, description, properties, required):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": required}}}


WEATHER = function("get_weather", "Weather at a \"place\" <now>", {"place": {"type": "string", "description": "e.g. Zürich, 東京"}, "unit": {
    "type": "string", "enum": ["°C", "°F"]}, "days": {"type": ["integer", "null"], "minimum": 0, "default": None}}, ["place"])
ORDER = function("order", "Orders it's things", {"lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {
    "type": "string"}, "count": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["sku", "count"]}},
    "limit": {"type": "number", "maximum": 1e20, "multipleOf": 0.5}, "gift": {"type": "boolean", "default": False}, "extra": {}}, [])
ASK, ANSWER = say("user", "What is 2 + 2?"), say("assistant", "It is 4.")
SYSTEM = say("system", "You are terse. /no_think")
CALLS = [say("user", "Weather in Paris?"), say("assistant", "", tool_calls=[
    call("get_weather", {"place": "Paris", "unit": "°C", "days": 2}, "a1B2c3D4e")])]
RESULT = say("tool", "{\"temperature\": 21.5}", tool_call_id="a1B2c3D4e", name="get_weather")
TWO = [say("user", "Paris and 東京?"), say("assistant", "<think>\nTwo calls.\n</think>\n\nI look.", tool_calls=[
    call("get_weather", {"place": "Paris"}, "000000001"),
    call("order", {"lines": [{"sku": "é\"", "count": 1}], "limit": 1.0, "gift": True}, "000000002")]),
    say("tool", "sunny", tool_call_id="000000001"), say("tool", "", tool_call_id="000000002"), say("assistant", "<think>Done.</think>Both.")]
THINK = say("assistant", "<think>\nAdd them:\n2 + 2\n</think>\n\n4\n")
CONVERSATIONS = {name: {"messages": messages, "tools": tools, **more} for name, messages, tools, more in [
    ("plain", [ASK], None, {}), ("system", [SYSTEM, ASK], None, {"enable_thinking": False}), ("answered", [ASK, ANSWER], None, {}),
    ("turns", [SYSTEM, ASK, ANSWER, say("user", "And 3 + 3?"), say("assistant", "6"), say("user", "Thanks!")], None, {}),
    ("empty", [say("system", ""), say("user", ""), say("assistant", ""), say("user", "")], None, {}),
    ("unicode", [say("system", "Sé útil. 你好，世界"), say("user", "👩‍👩‍👧‍👦 e\u0301 ﷽ \u00a0x\u2003"), say("assistant", "\u3000全角\u3000🏳️‍🌈\u200b"),
                 say("user", "ÄÖÜ ß ǆ\u2028\u0085")], None, {}),
    ("braces", [say("user", "{{ x }} {% if %} {# c #} '\"\\n\\ <|im_end|> %s {0}"), say("assistant", "{%- raw -%}}}"), ASK], None, {}),
    ("spaces", [say("system", " \n You help. \t\n"), say("user", "\n\n  hello \r\n\t"), say("assistant", "\n\n hi\u00a0\n"),
                say("user", "   ")], None, {}),
    ("thinking", [ASK, THINK, say("user", "Sure?"), THINK], None, {}),
    ("reasoning", [ASK, say("assistant", "4", reasoning_content="\nEasy.\n"), say("user", "<tool_response>x</tool_response>"),
                   say("assistant", "\nYes.", reasoning_content="Still 4.")], None, {"enable_thinking": True}),
    ("tools", [SYSTEM, ASK], [WEATHER, ORDER], {}),
    ("tools_first", [say("system", "Help."), say("user", " Which? ")], [WEATHER], {
        "tools_in_user_message": False, "date_string": "1 Mar 2025", "builtin_tools": ["wolfram_alpha", "code_interpreter", "brave_search"]}),
    ("called", CALLS, [WEATHER], {}), ("result", CALLS + [RESULT, say("assistant", "21.5 °C")], None, {}), ("two_calls", TWO, [ORDER], {}),
    ("last_tool", TWO[:-1], None, {}), ("builtin", [ASK, say("assistant", None, tool_calls=[call("search", {"query": "a \"b\"", "n": 3}, "x")]),
                                                    say("ipython", {"output": [1, None, "é"]})], None, {"builtin_tools": ["search"]}),
    ("parts", [say("user", [{"type": "text", "text": " See: "}, {"type": "image"}, {"type": "text", "text": "ok"}]), ANSWER], None, {}),
    ("python", [say("system", "Be /system_override brief"), ASK], None, {"python_tools": ["def f(x):\n    pass"], "enable_thinking": False}),
    ("python_dict", [ASK], None, {"python_tools": ["def g(): ...", {"a": [1, {}], "b": []}]}),
    ("user_user", [ASK, ASK], None, {}), ("assistant_first", [ANSWER, ASK], None, {}), ("late_system", [ASK, ANSWER, SYSTEM, ASK], None, {}),
    ("bad_role", [say("critic", "No."), ASK], None, {}), ("no_content", [{"role": "user"}, ANSWER], None, {}), ("none", [], None, {})]}

# Variables of the features; each gets those whose names its text holds.
VALUES = {
    "name": "World", "text": "  Hëllo, 你好 👩‍👧 e\u0301 wörld  ", "seven": 7, "half": 2.5, "yes": True, "nil": None, "nums": [3, 1, 2, 3],
    "word": "abcdef", "words": ["b", "A", "c", "B"],
    "people": [{"name": "Ann", "age": 30, "at": {"x": 1}}, {"name": "bob", "age": 25, "at": {"x": 2}}, {"name": "Cy"}],
    "pairs": {"b": 1, "a": [1, 2.0, None, True], "q": "it's", "C": {}}, "shadow": {"items": [1], "keys": "k", "get": 2}, "blank": "", "void": [],
    "deep": {"ß": "é\n\t\"\\/<>&'\u0001\u007f\u2028😀", "f": [1e20, 1e-7, 0.1, 1.0, -0.0, 1e16, 123456789.125],
             "t": [True, False, None, {}, [], [[]]]},
    "odd": ["it's", '"', "'\"", "\n\t\\\r", "\u0000\u001f\u007f", "é😀你", "\u00a0\u200d\u00ad\u3000"], "html": "<a href=\"x\">&'</a>",
    "lines": "a\nb\r\nc\n\nd", "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3}]}], "plan": {"type": "x", "n": 2}}
# One to a line or more, parted by a broken bar.
SHORT = r"""
Hello {{ name }}!¦{{ missing }}|{{ pairs.missing }}|{{ pairs['missing'] }}|{{ nums[9] }}¦{{ missing.x }}¦{{ pairs.no.x }}¦{{ nil.x }}¦{{ nil.x.y }}
{{ missing + 'a' }}¦{{ 'a' + missing }}¦{{ 'a' ~ missing ~ nil ~ 1 ~ 2.0 ~ yes }}¦{{ 'a' + nil }}¦{{ 'a' + 1 }}¦{{ missing() }}¦{{ name() }}
{{ -missing }}¦{% for x in missing %}{{ x }}{% else %}none{% endfor %}¦{% for x in nil %}{% endfor %}¦{{ missing|length }}|{{ missing|list }}
{{ missing == nil }}{{ missing != 1 }}¦{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }} {% endfor %}¦{{ loop }}
{% for x in nums %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.last }}{{ loop.length }}{% endfor %}¦{% for c in 'né👍' %}[{{ c }}]{% endfor %}
{% for x in words %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.cycle('p', 'q', 'r') }} {% endfor %}¦{% set a, b = 1, 'z' %}{{ b }}{{ a }}
{% for x in void %}{{ x }}{% else %}no{% endfor %}¦{% for k, v in pairs.items() %}{{ k }}={{ v }};{% endfor %}¦{% for k in pairs %}{{ k }}{% endfor %}
{% for x in nums if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.previtem is defined }} {% else %}-{% endfor %}¦{% set pairs.x = 1 %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}¦{% for a, b in [(1, 2, 3)] %}{% endfor %}¦{% set name = name ~ '?' %}{{ name }}
{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}
{% for a in [1, 2] %}{% set o = loop %}{% for b in 'xy' %}{{ o.index }}{{ loop.index }}{{ o.last }} {% endfor %}{{ loop.index }}{% endfor %}
{% for p in people[:2] %}{% for k, v in p.items() if v is not mapping %}{{ k }}:{{ v }}{{ ',' if not loop.last }}{% endfor %};{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 10 %}{{ x }} {% endfor %}{{ x }}¦{% if yes %}{% set y = 2 %}{% endif %}{{ y }}
{% set x = 1 %}{% for i in [1, 2] %}{% if i == 1 %}{% set x = 5 %}{% endif %}{{ x }}{% endfor %}{{ x }}¦{% macro m(x) %}{% endmacro %}{{ m(z=1) }}
{% for i in [1] %}{% set w = 3 %}{% endfor %}{{ w is defined }}¦{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}{{ ns['a'] }}
{% set ns = namespace(n=0, s='') %}{% for x in nums %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }} {{ ns.s }}{{ ns.no }}
{% set ns = namespace() %}{% set ns.x %}b{{ 1 }}{% endset %}{{ ns.x }}¦{% set q %}a{{ name }}{% endset %}{{ q|length }}{{ q ~ '!' }}{{ q is string }}
{% set q | upper | replace('L', '1') %}hello {{ name }}{% endset %}{{ q }}¦{% for name in [1] %}{{ name }}{% endfor %}{{ name }}
{% with a = 1, b = seven %}{{ a + b }}{% set c = 4 %}{{ c }}{% endwith %}{{ a }}{{ c }}¦{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}
{% if nil %}1{% elif missing %}2{% elif blank %}3{% elif void %}4{% else %}5{% endif %}¦{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }}
{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{{ a is defined }}|{% endmacro %}{{ m() }}{{ m(1, c=3) }}{{ m(b=2, a=1) }}{{ m(1, 2, 3)|length }}
{% macro m(x) %}{{ x }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}¦{% filter upper %}a {{ name }}é{% endfilter %}¦{{ 'a' 'b'|upper }}
{% macro m() %}{{ v }}{{ name }}{% set v = 2 %}{{ v }}{% endmacro %}{% set v = 1 %}{{ m() }}{{ v }}¦{% raw %}{{ x }} {% if %} {# c #}{% endraw %}
{% macro walk(t) %}({{ t.v }}{% for k in t.kids %}{{ walk(k) }}{% endfor %}){% endmacro %}{{ walk(tree[0]) }}¦{{ "it's" 'a' "b" }}¦{{ "{{ x }} %}" }}
{% for i in [1] %}{% macro f() %}f{{ i }}{% endmacro %}{{ f() }}{% endfor %}¦{% filter replace('a', 'b')|trim %} aa {% endfilter %}¦{{ '{% raw %}' }}
{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('T') %}in {{ name }}{% endcall %}¦  {%- raw -%}  {{ y }}  {%- endraw -%}  z
{% macro each(l) %}{% for i in l %}{{ caller(i, 2) }}{% endfor %}{% endmacro %}{% call(a, b) each(nums) %}{{ a * b }},{% endcall %}¦{{ 1 // 0 }}
{{ 'a\n\t\\\'\"\x41\u00e9\U0001F600\101\q' }}¦{# {{ x }} {% y %} '#}'#}¦{{ 1_000 }}{{ 0x1F }}{{ 1e3 }}{{ 1.5E-3 }}¦{{ 1 % 0 }}¦{{ 1 < 'a' }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}¦{{ nil > 1 }}¦{{ (1, 2) in [(1, 2)] }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 - -1 }} {{ +seven }}¦{{ 'ab' * 2 }} {{ [1] * 2 }} {{ [1] + [2] }} {{ true + 1 }} {{ 0.1 + 0.2 }} {{ 1 + 1.0 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ -1|abs }} {{ 1 + 2 * 3 - 4 }} {{ 'a' ~ 1 + 'b' }} {{ 1 ~ 2 * 3 }}¦{{ 1 in word }}¦{{ 1 in seven }}¦{{ 'x' in nil }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }}¦{{ 'x' in missing }}
{{ [1, 2] < [1, 3] }} {{ pairs == pairs }} {{ nil == false }}¦{{ 'a' if yes }}{{ 'b' if not yes }}|{{ 1 if nil else 2 if yes else 3 }}
{{ 1 in nums }} {{ 9 not in nums }} {{ 'b' in pairs }} {{ 'bc' in word }} {{ not 1 in nums }} {{ '' in word }}¦{{ ('a' if nil) + 'b' }}
{{ 1 and 2 }} {{ 0 or 'x' }} {{ '' or void or nil }} {{ not '' }} {{ not 1 and 0 or 2 }} {{ nil and nil.x }}¦{{ range is callable }}
{{ name is defined }} {{ missing is defined }} {{ missing is not defined }} {{ missing is undefined }}¦{{ 'a' is lower }} {{ 'aB' is upper }}
{{ pairs.b is defined }} {{ pairs.z is defined }} {{ nil is defined }} {{ not missing is defined }}¦{{ 1 is nothing }}¦{{ 1|nothing }}
{{ nil is none }} {{ 0 is none }} {{ missing is none }} {{ nil is not none }} {{ name is string }}¦{% if false %}{{ 1|nothing }}{% endif %}ok
{{ 1 is string }} {{ pairs is mapping }} {{ nums is mapping }} {{ namespace(a=1) is mapping }}¦{{ nums[-1] }} {{ nums[:] }} {{ (1, 2, 3)[1:] }}
{% for v in [name, nums, pairs, nil, 1, 1.5, true, missing, (1,), range(2)] %}{{ v is iterable }},{{ v is sequence }},{{ v is mapping }};{% endfor %}
{% for v in [name, nums, nil, 1, 1.5, true, missing] %}{{ v is number }},{{ v is integer }},{{ v is float }},{{ v is boolean }};{% endfor %}
{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ missing is false }}¦{{ word[::0] }}¦{{ seven|length }}¦{{ deep|tojson }}
{{ yes is sameas true }} {{ 1 is sameas true }} {{ nil is sameas none }} {{ 'x' is callable }}¦{{ nums['a'] }}|{{ pairs[0] }}|{{ word['x'] }}
{{ 9 is divisibleby(3) }} {{ 9 is divisibleby 2 }} {{ 1 is equalto(1) }} {{ 1 is eq 2 }} {{ 1 is ne 2 }}¦{{ text|trim }}|{{ 'xxaxx'|trim('x') }}
{{ 2 is gt 1 }} {{ 2 is le 1 }} {{ 2 is in nums }} {{ 2 is not in(nums) }} {{ 3 is odd }} {{ 3 is even }}¦{{ seven|trim }}|{{ nil|trim }}
{{ 'a' is none or 'b' is string and 1 is not odd }} {{ (1 is odd) == true }} {{ 2 * 2 is even }}¦{{ deep|tojson(indent=2) }}¦{{ missing|tojson }}
{{ 'b' is in 'abc' }} {{ 'trim' is filter }} {{ 'odd' is test }}¦{{ text[2:6] }}|{{ text[::-1] }}|{{ text[10:14] }}|{{ text|length }}|{{ text[-3] }}
{{ word[1:3] }} {{ word[:-2] }} {{ word[-3:] }} {{ word[::2] }} {{ word[::-1] }} {{ word[5:1:-2] }}¦{{ range(3)|tojson }}
{{ word[9:] }} {{ word[-99:2] }} {{ word[0] }} {{ word[-1] }} {{ word[99] }} {{ nums[1:] }} {{ nums[::-1] }}¦{{ people|tojson(indent=1) }}
{{ shadow['items'] }}{{ shadow['keys'] }}{{ shadow.items()|list }}{{ shadow.get('get') }}¦{{ 'ab'|list }}{{ pairs|list }}{{ range(3)|list }}
{{ '\u3000\u00a0a\u2003\n'|trim }}|{{ nums|length }}{{ pairs|count }}{{ '👩‍👧e\u0301'|length }}{{ blank|length }}¦{{ missing.x|default(1) }}
{{ pairs|tojson(ensure_ascii=true) }}{{ '😀é'|tojson(ensure_ascii=True) }}¦{{ pairs.x|default('y') ~ 1 }}¦{{ 'ab'|replace('', '-') }}
{{ pairs|tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}¦{{ people|selectattr('age')|map(attribute='name')|list }}
{{ {1: 'a', 'k': (1, 2), none: 1, true: 0, 1.5: 2}|tojson }} {{ void|tojson(indent=4) }} {{ {}|tojson(4) }}
{{ html|tojson }}|{{ [nil, yes, half]|tojson }}|{{ ''|tojson }}|{{ 1.0|tojson }}|{{ seven|tojson(indent=1) }}¦{{ nums|map('string')|join('+') }}
{{ nums|join }} {{ nums|join(', ') }} {{ people|join('; ', attribute='name') }}¦{{ people|rejectattr('age', 'defined')|map(attribute='name')|join }}
{{ people[:2]|join('/', 'at.x') }} {{ word|join('.') }} {{ void|join('x') }} {{ pairs|join(',') }}¦{{ missing|items|list }}¦{{ nums|items|list }}
{{ nums|first }}{{ nums|last }}{{ word|last }}{{ word|first }}{{ void|first }}{{ void|last is defined }}
{{ missing|default('d') }} {{ nil|default('d') }} {{ nil|default('d', true) }}¦{{ people|selectattr('at.x', 'eq', 2)|map(attribute='name')|first }}
{{ blank|d('e', boolean=true) }} {{ 0|default(1) }} {{ missing|default }} {{ pairs.x|default([]) }}¦{{ [1, 'a']|sort }}
{{ 'ßé ǆ aΣ'|upper }} {{ 'ÀİΣ ΑΣ'|lower }} {{ "it's o'neil-foo bAR (x)"|title }}¦{{ words|unique|list }} {{ nums|reverse|list }} {{ word|reverse }}
{{ 'hELLO wORLD'|capitalize }} {{ 'ab ab'|replace('a', 'x') }} {{ 'aaa'|replace('a', 'b', 2) }}¦{{ -5|abs }} {{ -5.5|abs }} {{ (-5)|abs }}
{{ people|selectattr('age', 'defined')|list|length }} {{ people|selectattr('name', 'equalto', 'bob')|list }}
{{ nums|select('odd')|list }} {{ nums|reject('equalto', 3)|list }} {{ [0, 1, '', 'a', none]|select|list }}
{{ nums|select('gt', 1)|sum }} {{ nums|reject('in', [1])|list }} {{ words|map('upper')|list }}
{{ words|map('replace', 'b', 'x')|join }} {{ people|map(attribute='age', default=0)|list }}
{{ pairs|items|list }} {{ pairs|dictsort }} {{ {'b': 2, 'a': 3}|dictsort(by='value') }}
{{ pairs|dictsort(true)|map('first')|list }} {{ {'a': 1, 'b': 2}|dictsort(reverse=true) }}
{{ nums|sort }} {{ nums|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }}
{{ people[:2]|sort(attribute='age')|map(attribute='name')|list }} {{ nums|unique|list }}
{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent(width=1, blank=true) }}|{{ 'a\nb'|indent('> ', first=true) }}
{{ html|e }} {{ html|escape|length }} {{ html|safe }} {{ 5|e }}¦{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0, 'ceil') }}
{{ half|string ~ '!' }} {{ nums|string|length }} {{ nil|string }} {{ 'x'|string is string }}¦{{ 'a-b-c'.partition('-') }}¦{{ 'a'.split('') }}
{{ '42'|int }} {{ ' 42 '|int }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ '3.9'|int }} {{ -3.9|int }} {{ yes|int }}¦{{ 'ab'.count('') }} {{ word.index('c') }}
{{ nil|int }} {{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ 'x'|float(default=1.5) }} {{ '1e3'|float }}¦{{ word.index('x') }}
{{ 2.9|round(method='floor') }} {{ 2.675|round(2) }} {{ 1234|round(-2) }} {{ 2.6|round|int }} {{ -0.5|round }}
{{ nums|sum }} {{ people[:2]|sum(attribute='age') }} {{ nums|sum(start=10) }} {{ nums|min }} {{ nums|max }}
{{ words|min }} {{ words|max }} {{ void|max }} {{ people[:2]|max(attribute='age') }}¦{{ 'a'.center(3) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }}
{{ text.strip() }}|{{ 'xyaxy'.strip('yx') }}|{{ '  a '.lstrip() }}|{{ ' a  '.rstrip() }}|{{ '\n\na\n'.lstrip('\n') }}
{{ 'é你a你é'.strip('é你') }}|{{ '\u00a0\u3000\x1ca\u2028\x85'.strip() }}|{{ '\u200ba'.strip()|length }}
{{ ' a  b c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b  c '.split(none, 1) }}¦{{ '{} {}'.format(1) }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b '.rsplit(maxsplit=1) }} {{ ''.split() }} {{ ''.split('x') }}¦{{ ', '.join(nums) }}¦{{ word.nothing() }}
{{ 'a</t>b'.split('</t>')[-1] }} {{ lines.splitlines() }} {{ 'a\nb\x0bc\u2028d\x85\n'.splitlines(true) }}
{{ word.startswith('ab') }} {{ word.startswith(('x', 'ab')) }} {{ word.endswith('f') }}¦{{ '{{}}{}'.format(nil) }} {{ '{0[a]}'.format(pairs) }}
{{ word.endswith(('x',)) }} {{ word.startswith('c', 2) }} {{ ''.startswith('') }} {{ word.find('cd') }}¦{{ pairs.update({'z': 1}) }}¦{{ nums.pop() }}
{{ word.find('x') }} {{ 'é你é'.rfind('é') }} {{ 'abab'.find('b', 2) }} {{ 'aaaa'.count('aa') }}¦{{ word.nothing }}|{{ word.nothing is defined }}
{{ 'ßaé'.upper() }} {{ 'ÀB'.lower() }} {{ "it's o'neil x1y".title() }} {{ 'hELLO W'.capitalize() }}¦{{ nums.append(1) }}¦{{ odd }}
{{ 'aXbX'.replace('X', '--', 1) }} {{ 'aBé'.swapcase() }} {{ ', '.join(words) }}¦{{ pairs.items()|length }}{{ nums.count(3) }}{{ nums.index(2) }}
{{ 'abc'.removeprefix('ab') }} {{ 'abc'.removesuffix('x') }} {{ 'abc'.removesuffix('bc') }} {{ '7'.zfill(3) }}¦{{ pairs.keys() }}{{ pairs.items() }}
{{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ ''.isdigit() }} {{ 'aé你'.isalpha() }}¦{{ odd[4] }}{{ odd[6] }}|¦{{ range(1, 2, 0) }}
{{ 'a1'.isalnum() }} {{ ' \u3000'.isspace() }} {{ ''.isspace() }} {{ 'aé'.islower() }} {{ 'A1'.isupper() }}¦{{ 0.0001 }} {{ 1e22 }} {{ 5e-324 }}
{{ 'Ab Cd'.istitle() }} {{ 'a_1'.isidentifier() }} {{ '٣'.isdecimal() }}¦{{ deep.f }}{{ true }}{{ none }}{{ True }}{{ None }}{{ False }}
{{ '{} and {}'.format('a', 1) }} {{ '{1}{0}{1}'.format('a', 'b') }} {{ '{n}={v}'.format(n=name, v=half) }}¦{{ raise_exception('Bad role: ' ~ name) }}
{{ pairs.get('b') }} {{ pairs.get('z') }} {{ pairs.get('z', 'd') }} {{ pairs.items()|list }}¦a{% if not yes %}{{ raise_exception('x') }}{% endif %}b
{{ pairs.keys()|list }} {{ pairs.values()|list }} {{ pairs.get('a')[1] }} {{ 'b' in pairs.keys() }}¦ {% generation %} a {% endgeneration %} .¦{% if %}
{{ pairs }}|{{ nums }}|{{ people }}|{{ (1,) }}{{ () }}{{ (1, 'a') }}{{ {} }}{{ [] }}|{{ {'a': none, 1: true} }}|{{ [missing] }}¦{% if yes %}¦{{ 'a }}
{{ 1e20 }} {{ 1e-7 }} {{ 0.1 }} {{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.125 }} {{ -0.0 }} {{ 1/3 }}¦{%- generation -%} a {%- endgeneration -%} b
{{ dict(a=1, b='x') }} {{ dict(pairs, b=2)['b'] }} {{ range(3)|list }} {{ range(1, 4)|list }}¦{% generation %}{% endgeneration %}¦{{ a b }}¦{{ }}
{{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3) }} {{ range(3)|length }} {{ range(10)[2:4] }}¦{% nothing %}¦{% endif %}¦{# open¦{{ (1 }}
{{ dict(a=1).a }}{{ {'a': {'b': [10, 20]}}.a.b[1] }}{{ ['x', 'y'][seven - 6] }}{{ people[0]['at']['x'] }}{{ people.0.name }}¦{{ 'a' if }}¦{% break %}
{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S') }}|{{ strftime_now('%A %B %a %j %I %p %y %% %e %-d') }}¦{% set x %}¦{{ {'a' 1} }}
{% generation %}é{{ name }}{% endgeneration %}-{% for x in nums %}你{% generation %}{{ x }}😀{% endgeneration %}{% endfor %}¦a }} b %} c #} {d}
{% set v = 1 %}{% generation %}{% set v = 2 %}{{ v }}{% endgeneration %}{{ v }}¦{% for x nums %}{% endfor %}¦{{ plan.type }}{{ plan.n * 2 }}
{% if seven > 5 and half < 3 and name == 'World' %}y{% endif %}¦{{ [x for x in nums] }}¦{% set 1 = 2 %}¦{{ name.__class__ }}
{{ name|upper|lower|title()|length }}¦{% for i in range(nums|length) %}{{ nums[i] }}{% endfor %}¦{% set v = 'a' if nil else 'b' %}{{ v }}
{{ nums[(nums|length) - 1] }}{{ word[seven - 5:] }}{{ word[:-1] ~ '}' }}¦{{ people|selectattr('name', 'in', ['Ann'])|list|length }}
{{ people|map('tojson')|join(' ') }}¦{{ pairs|length > 2 and 'b' in pairs }}¦{{ lines.split('\n')|map('trim')|select|join('/') }}
{% set ns = namespace(l=[]) %}{% for x in nums %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l }}{{ ns.l|length }}
{% for x in nums|reverse %}{{ x }}{% endfor %}{% for x in nums[:2] + [9] %}{{ x }}{% endfor %}¦{% set void = void or [1] %}{{ void }}
{% for i in range(3) %}{% for j in range(3) %}{% if j == i %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% for x in nums %}{% if loop.index is even %}e{% elif loop.last %}l{% else %}o{% endif %}{% endfor %}¦{{ [1, [2, (3, [4.0, 'x'])], {'k': [none]}] }}
{{ '' if missing is not defined or missing is none else 'y' }}{{ missing or 'z' }}{{ missing and 1 }}¦{{- '  a' -}}   {{- ' b ' }}  c
{% for x in nums %}{% else %}a{% endfor %}¦{% for x in nums %}{% break %}{% else %}b{% endfor %}¦{{ people|map(attribute='at')|list }}
{{ {'role': 'user', 'content': word ~ "\n"}|tojson ~ '\n' }}¦{% for x in nums -%} {{ x }} {%- if not loop.last %}, {% endif -%} {% endfor %}
{{ name if name is string else name|tojson }}{{ nums if nums is string else nums|tojson }}
{% if not (yes and nil) and (seven == 7 or missing.x) %}t{% endif %}
{{ nums == [3, 1, 2, 3] }} {{ nums != nums }} {{ people[0] == people[1] }} {{ people[-1] == {'name': 'Cy'} }}
"""
LONG = ["a\n", "a\n\n", "\n a {% if yes %}b{% endif %}\n", "a\r\nb\rc\r\n", "{{ 'a\r\nb\n' }}\n\n", "", "\n", "a\n  {% set x = 1 %}\n\n  {{ x }}\n",
        "{% raw %}\n a\n{% endraw %}\n b", "{% for x in nums %}\n\t- {{ x }}\n{% endfor %}\nend", "a {# b #}\nc\n  {# d #}  \n e",
        "  {{ name }}\n  {{- name -}}  \n x", "x {%- set a = 1 %}\n\n y {%- set b %}\n z \n{% endset %}\n[{{ b }}]",
        "{% if yes %}\n  {%- if nil %}\n 1\n  {%- else %}\n 2\n  {%- endif %}\n{% endif %}\n3",
        "{% macro m(a) -%}\n  <{{ a }}>\n{%- endmacro %}\n\n{{ m(1) }}\n{{ m(2) -}}\n", "{{ {\n  'a': 1,\n  'b': [1,\n 2,],\n}\n}}",
        "\u3000{% if yes %}\u00a0{%- endif %}\u2003{%- if yes %}x{% endif %}\n\u2028y", "{{\n name\n ~ '!'\n}}",
        " {% if yes %} {% if yes %}\n a {% endif %}\n{% endif %}"]
LONG += [f"x \n\t {{%{a} if yes {b}%}} \n y {{%{a} endif {b}%}}\n\n z {{#{a} c {b}#}}\n  w" for a in ("", "-", "+") for b in ("", "-", "+")]


def main():
    warnings.simplefilter("ignore")  # of the escape that Python does not know
    cases, features = [], []
    for template, text in TEMPLATES.items():
        for name, conversation in CONVERSATIONS.items():
            if conversation["tools"] and "tool_call" not in text and name != "tools":
                continue
            for prompt in (False, True):
                variables = {"documents": None, "add_generation_prompt": prompt, **TOKENS[template], **conversation}
                cases.append({"template": template, "conversation": name, "add_generation_prompt": prompt, **render(text, variables)})
    for text in [part for line in SHORT.strip("\n").split("\n") for part in line.split("¦")] + LONG:
        variables = {name: value for name, value in VALUES.items() if re.search(rf"\b{name}\b", text)}
        result = render(text, variables)
        features.append({"template": text, "variables": variables, **{key: value for key, value in result.items() if value != []}})
    content = {"versions": {"jinja2": jinja2.__version__, "python": platform.python_version()}, "tokens": TOKENS, "templates": TEMPLATES,
               "conversations": CONVERSATIONS, "cases": cases, "features": features}
    TARGET.write_text(json.dumps(content, indent=1, ensure_ascii=True, sort_keys=False) + "\n")
    print(f"{len(cases)} cases, {len(features)} features, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
