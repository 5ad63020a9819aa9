// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/chat_template.hpp>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace fsdp::text {
namespace {

using Json = nlohmann::ordered_json;

/// The clock of make_chat_templates.py: 26 Jul 2024, 12:34:56, a Friday.
std::tm clock_of_vectors() {
  std::tm clock{};
  clock.tm_year = 124;
  clock.tm_mon = 6;
  clock.tm_mday = 26;
  clock.tm_hour = 12;
  clock.tm_min = 34;
  clock.tm_sec = 56;
  clock.tm_wday = 5;
  clock.tm_yday = 207;
  return clock;
}

const Json& vectors() {
  static const Json read = Json::parse(std::ifstream(TESSERA_TEST_DATA "/text/chat_templates.json"));
  return read;
}

RenderedChat rendered(const std::string& text, const Json& variables) {
  return ChatTemplate::parse(text, "template").render(variables.dump(), clock_of_vectors());
}

/// `expected` contains the result of jinja2: a text and its answers, or an error.
void expect_as_jinja2(const std::string& text, const Json& variables, const Json& expected) {
  if (!expected.contains("text")) {
    try {
      ADD_FAILURE() << "rendered as " << rendered(text, variables).text << " instead of " << expected.at("error");
    } catch (const InputError& error) {
      const bool raised = expected.value("exception", "") == "TemplateError";
      const std::string words = raised ? expected.at("error").get<std::string>() : "";
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
    return;
  }
  try {
    const RenderedChat chat = rendered(text, variables);
    EXPECT_EQ(chat.text, expected.at("text").get<std::string>());
    if (!expected.contains("spans")) return;
    Json spans = Json::array();
    for (const TextRange& answer : chat.answers) spans.push_back({answer.begin, answer.end});
    EXPECT_EQ(spans, expected.at("spans"));
  } catch (const InputError& error) {
    ADD_FAILURE() << error.what() << "\ninstead of " << expected.at("text");
  }
}

TEST(ChatTemplate, FamiliesRenderAsJinja2Does) {
  for (const Json& one : vectors().at("cases")) {
    const auto name = one.at("template").get<std::string>();
    SCOPED_TRACE(name + " " + one.at("conversation").get<std::string>());
    Json variables = vectors().at("conversations").at(one.at("conversation").get<std::string>());
    variables.update(vectors().at("tokens").at(name));
    variables["documents"] = nullptr;
    variables["add_generation_prompt"] = one.at("add_generation_prompt");
    expect_as_jinja2(vectors().at("templates").at(name), variables, one);
  }
}

/// Templates that jinja2 renders differently (docs/conversations.md), identified by a part of each.
const std::vector<std::string> differences = {
    "varargs",                  // refused
    "0x1F",                     // numbers are decimal
    "1|nothing",                // unknown names are refused even in branches that are not taken
    "is filter",                // unknown
    "range(3)|tojson",          // a range is a list
    "{{ range(3) }}",           // a range prints as a list
    "pairs.keys() }}{{ pairs",  // keys and items are lists
    "selectattr('at.x'",        // lists are evaluated completely, so that errors after the first item are detected
    "{{ 'ßé",                   // one character maps to one: ß is unchanged
    "'ßaé'.upper()",
    "center(3)",  // unknown methods
    "swapcase()",
    "zfill(3)",
    "isnumeric()",
    "istitle()",
    "'{0[a]}'.format",     // fields of a format are names and numbers
    "startswith('c', 2)",  // only one argument is supported
    "find('b', 2)",
};

TEST(ChatTemplate, FeaturesRenderAsJinja2Does) {
  for (const Json& one : vectors().at("features")) {
    const auto text = one.at("template").get<std::string>();
    const auto is_part = [&](const std::string& part) { return text.find(part) != text.npos; };
    if (std::any_of(differences.begin(), differences.end(), is_part)) continue;
    SCOPED_TRACE(text);
    expect_as_jinja2(text, one.at("variables"), one);
  }
}

std::string refusal(const std::string& text, const Json& variables = Json::object()) {
  try {
    return "rendered as " + rendered(text, variables).text;
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(ChatTemplate, UnknownConstructsAreReportedWithTheirLine) {
  EXPECT_EQ(refusal("a\n{{ x | shuffle }}"), "template: line 2: the filter 'shuffle' is not known");
  EXPECT_EQ(refusal("{%\n\nset a.b | trim %}{% endset %}").substr(0, 16), "template: line 3")
      << "of the statement's name";
  EXPECT_EQ(refusal("{{ x is prime }}"), "template: line 1: the test 'prime' is not known");
  EXPECT_EQ(refusal("\n\n{% include 'x' %}"), "template: line 3: the statement 'include' is not known");
  EXPECT_EQ(refusal("{% if x %}{% for a in x %}"), "template: line 1: 'endfor' is missing");
  EXPECT_EQ(refusal("{% endif %}"), "template: line 1: the statement 'endif' is not known");
  EXPECT_EQ(refusal("{{ f(*x) }}"), "template: line 1: arguments by * are not known");
  EXPECT_EQ(refusal("{{ 'a' % 1 }}"), "template: line 1: formatting a text by % is not known");
  EXPECT_EQ(refusal("{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}"),
            "template: line 1: a generation block within a macro, a filter or a set block is not known");
  EXPECT_EQ(refusal("\xff"), "template: is not UTF-8");
}

TEST(ChatTemplate, NumbersOfMoreThan63BitsKeepTheirDigits) {  // the expected text is that of jinja2
  constexpr const char* variables = R"({"a": 18446744073709551615, "b": -9223372036854775809,
      "c": 123456789012345678901234567890, "d": 9223372036854775808, "e": 9223372036854775807})";
  const auto print = [&](const std::string& text) {
    return ChatTemplate::parse(text, "template").render(variables, clock_of_vectors()).text;
  };
  EXPECT_EQ(print("{{ a }} {{ [b] }} {{ {'x': c} | tojson }} {{ a > 5 }} {{ b < 5 }} {{ a < c }} {{ c < 1.5 }} "
                  "{{ a == d }} {{ a == a }} {{ d > e }} {{ a is integer }} {{ a is number }} {{ 'x' if a }} "
                  "{{ c | string | length }} {{ a ~ b }} {{ [c, a, d, e] | sort }} {{ a | float }} {{ a in [1, a] }}"),
            "18446744073709551615 [-9223372036854775809] {\"x\": 123456789012345678901234567890} True True True False "
            "False True True True True x 30 18446744073709551615-9223372036854775809 [9223372036854775807, "
            "9223372036854775808, 18446744073709551615, 123456789012345678901234567890] 1.8446744073709552e+19 True");
  EXPECT_THROW(print("{{ a + 1 }}"), InputError);
}

TEST(ChatTemplate, RenderingErrorsAreReportedWithTheirLine) {
  EXPECT_EQ(refusal("{{ a.b.c }}", {{"a", Json::object()}}), "template: line 1: 'b', which is undefined, has no 'c'");
  EXPECT_EQ(refusal("x\n{{ raise_exception('no system role') }}"),
            "template: line 2: the template refuses the conversation: no system role");
  EXPECT_EQ(refusal("{{ 1 // 0 }}"), "template: line 1: division by zero");
  EXPECT_EQ(refusal("{{ 9223372036854775807 + 1 }}"), "template: line 1: a number of more than 63 bits");
  EXPECT_EQ(refusal("{{ 9223372036854775807 | round(-1) }}"), "template: line 1: round: a number of more than 63 bits");
  EXPECT_EQ(refusal("{{ '1' | int(0, 1) }}"), "template: line 1: int: the base 1 is not from 2 to 36");
  EXPECT_EQ(refusal("{{ messages.append(1) }}", {{"messages", Json::array()}}),
            "template: line 1: 'append', which is undefined, cannot be called");
}

TEST(ChatTemplate, ErrorsQuoteTheTemplateShortenedAndEscaped) {
  EXPECT_EQ(refusal("{{ raise_exception('\\x1b[31mRED\n') }}"),
            "template: line 1: the template refuses the conversation: \\x1b[31mRED\\n");
  const auto cut = [](const std::string& before, std::size_t bytes, const std::string& after) {
    return "template: line 1: " + before + std::string(400, '9') + "... (" + std::to_string(bytes) + " bytes)" + after;
  };
  EXPECT_EQ(refusal("{{ raise_exception('9' * 100000) }}"),
            cut("the template refuses the conversation: ", 100'000, ""));
  const std::string digits(100'000, '9');
  EXPECT_EQ(refusal("{{ " + digits + " }}"), cut("the number ", 100'000, " has more than 63 bits"));
  EXPECT_LT(refusal("{{ x | f" + digits + " }}").size(), 500u);
  EXPECT_LT(refusal("{% f" + digits + " %}").size(), 500u);
  EXPECT_LT(refusal("{{ f" + digits + ".b }}").size(), 500u);
  EXPECT_EQ(refusal("{{ " + std::string(256, 'f') + " }}"), "rendered as ");
  EXPECT_NE(refusal("{{ " + std::string(257, 'f') + " }}").find(" has more than 256 bytes"), std::string::npos);
  EXPECT_EQ(refusal("{{ {}['x' * 100000].b }}"),
            "template: line 1: '" + std::string(60, 'x') + "... (100000 bytes)', which is undefined, has no 'b'");
}

TEST(ChatTemplate, StepsAndMemoryAreBounded) {
  const auto bounded = [](const std::string& text) {
    const std::string error = refusal(text);
    for (const char* words : {"more than", "larger than", "longer than"})
      if (error.find(words) != error.npos) return true;
    return false;
  };
  EXPECT_TRUE(bounded("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"));
  EXPECT_TRUE(
      bounded("{% set ns = namespace(x='aa') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"));
  EXPECT_TRUE(
      bounded("{% set ns = namespace(x=[]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"));
  EXPECT_TRUE(bounded("{{ 'a' * 99999999999 }}"));
  EXPECT_TRUE(bounded("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"));
  EXPECT_TRUE(bounded("{{ range(9999999) }}"));
  EXPECT_TRUE(bounded("{% for a in range(100000) %}{% set x = range(100000) %}{% endfor %}"));
  EXPECT_TRUE(bounded("{% set x = '\\n' * 999999 %}{{ x | indent(999, blank=true) }}"));
  EXPECT_TRUE(bounded("{{ range(100000) | join('x' * 999999) }}"));
  EXPECT_TRUE(bounded("{{ ('{0}' * 99999).format('x' * 999999) }}"));
  EXPECT_TRUE(bounded("{{ range(100000) | unique | list }}"));
  EXPECT_TRUE(bounded("{{ ('a' * 99999) | replace('a', 'x' * 99999) }}"));
  EXPECT_TRUE(bounded("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"));
  EXPECT_TRUE(bounded("{{ " + std::string(5000, '-') + "1 }}"));
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += "{% if 1 %}";
  EXPECT_TRUE(bounded(nested));
}

TEST(ChatTemplate, NestingDepthOfValuesAndExpressionsIsBounded) {
  const std::string grows = "{% set ns = namespace(s=[1], t=[1]) %}{% for x in range(900) %}";
  const std::string deep = "template: line 1: values become nested more than 200 deep";
  EXPECT_EQ(refusal(grows + "{% set ns.s = [ns.s] %}{% endfor %}"), deep);
  EXPECT_EQ(refusal(grows + "{% set ns.s = {'a': ns.s} %}{% endfor %}"), deep);
  EXPECT_EQ(refusal(grows + "{% set ns.s = {(ns.s, 1): 1} %}{% endfor %}"), deep);
  EXPECT_EQ(refusal(grows + "{% set ns.s = ns.s | items | list if ns.s is mapping else dict(a=ns.s) %}{% endfor %}"),
            deep);
  EXPECT_EQ(refusal(grows + "{% set ns.s = [ns.s.count] %}{% endfor %}"), deep);  // a method references its list
  EXPECT_EQ(refusal(grows + "{% for y in [ns.s] %}{% set ns.s = loop %}{% endfor %}{% endfor %}"), deep);
  EXPECT_EQ(refusal(grows + "{% set ns.s = namespace(s=ns.s) %}{% endfor %}{{ ns.s is defined }}"), "rendered as True");
  EXPECT_EQ(refusal("{% set ns = namespace(s=[]) %}{% for x in range(199) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s "
                    "== ns.s }}"),
            "rendered as True");

  const std::string expression = "template: line 1: an expression is more than 1000 deep";
  for (const std::string term : {"1 + ", "'a' ~ ", "1 and ", "1 or ", "1 if 1 else 1 if ", "2 ** "}) {
    std::string many;
    for (int i = 0; i < 50000; ++i) many += term;
    const std::string said = refusal("{{ " + many + "1 }}");
    EXPECT_TRUE(said == expression || said == "template: line 1: expressions are nested more than 200 deep") << said;
  }
  EXPECT_EQ(refusal("{% set " + std::string(50000, '(') + "a" + std::string(50000, ')') + " = 1 %}"),
            "template: line 1: names are nested more than 100 deep");
  std::string maps;
  for (int i = 0; i < 5000; ++i) maps += "'map',";
  EXPECT_EQ(refusal("{{ 'a' | map(" + maps + "'upper') }}"), "template: line 1: map: has more than 20 arguments");
}

TEST(ChatTemplate, TheStepLimitGrowsWithTheConversation) {
  const std::string loops = "{% for a in x %}{% for b in x %}{% endfor %}{% endfor %}";
  EXPECT_EQ(refusal(loops, {{"x", std::string(20, 'a')}}), "rendered as ");
  const std::string said = refusal(loops, {{"x", std::string(3000, 'a')}});
  EXPECT_EQ(said, message("template: line 1: the template takes more than ", 20000 + 10 * loops.size() + 100 * 3004,
                          " steps for 3004 bytes; its loops or values grow faster than the conversation; take another ",
                          "one, such as --chat-template chatml"));
  // Each of these uses steps for its own work, not for the number of expressions.
  for (const std::string work : {"(x * 9)[::2]",
                                 "[x, x, x, x] == [y, y, y, y] and x == y and x == y and x == y",
                                 "x | list",
                                 "x.split('a')",
                                 "x.find('a' * 999 ~ 'b')",
                                 "x.strip(x)",
                                 "x.replace('a', 'bb')",
                                 "x | tojson",
                                 "[x] | sort",
                                 "x in y",
                                 "x[-1]",
                                 "x | unique",
                                 "(x ~ y)",
                                 "x | indent",
                                 "x.upper()",
                                 "[1] * 1000",
                                 "{x ~ 1: 1}[x ~ 2]",
                                 "(x | list) | map('upper') | join",
                                 "x is lower",
                                 "1.5 | round(300)",
                                 "[none, none, none, none, none] | map(attribute='no') | list",
                                 "x.startswith(y)"}) {
    const std::string text = "{% for a in range(4000) %}{% if " + work + " %}{% endif %}{% endfor %}";
    const Json variables = {{"x", std::string(1000, 'a')}, {"y", std::string(1000, 'a')}};
    EXPECT_NE(refusal(text, variables).find("the template takes more than"), std::string::npos) << work;
  }
}

TEST(ChatTemplate, OnlyLiveValuesCountTowardsTheMemoryLimit) {
  const std::string text =
      "{% set ns = namespace(s=[]) %}{% for a in x %}{% set ns.s = ns.s + [a * 1000] %}{% endfor %}";
  EXPECT_EQ(refusal(text, {{"x", "abc"}}), "rendered as ");
  const Json variables = {{"x", {1}}, {"pad", std::string(200000, 'a')}};
  EXPECT_NE(refusal("{% set a = [pad * 300, pad * 301, pad * 302] %}", variables).find("bytes"), std::string::npos);
}

TEST(ChatTemplate, MacroParametersCostStepsAndHaveTheirOwnScope) {
  std::string parameters = "a0=1";
  for (int i = 1; i < 3000; ++i) parameters += ",a" + std::to_string(i) + "=1";
  const std::string calls =
      "{% macro f(" + parameters + ") %}{% endmacro %}{% for a in range(30) %}{{ f() }}{% endfor %}";
  EXPECT_NE(refusal(calls).find("the template takes more than"), std::string::npos);
  EXPECT_EQ(
      refusal(
          "{% set a = 1 %}{% macro f(a, b=a, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(2, c=3) }}{{ f(a=4) }}"),
      "rendered as 223444");
  EXPECT_EQ(refusal("{{ 1e300 | round(300) }} {{ 2.25 | round(1) }} {{ -1e16 | round }}"),
            "rendered as 1e+300 2.2 -1e+16");
}

/// Templates with changed, removed and duplicated bytes must be refused or rendered, without a crash.
TEST(ChatTemplate, DamagedTemplatesAreRefusedOrRendered) {
  std::mt19937_64 random(7);
  const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  for (const auto& [name, whole] : vectors().at("templates").items()) {
    Json variables = vectors().at("conversations").at("tools");
    variables.update(vectors().at("tokens").at(name));
    for (int round = 0; round < 100; ++round) {
      std::string text = whole.get<std::string>();
      for (std::size_t changes = 1 + draw(3); changes > 0; --changes) {
        const std::size_t at = draw(text.size());
        const std::string part = text.substr(draw(text.size()), draw(20));
        text.replace(at, draw(10), part);
      }
      const std::string said = refusal(text, variables);
      EXPECT_TRUE(said.starts_with("rendered as ") || said.starts_with("template: ")) << said;
    }
  }
}

}  // namespace
}  // namespace fsdp::text
