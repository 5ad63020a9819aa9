// SPDX-License-Identifier: Apache-2.0
#include <fsdp/text/chat_template.hpp>

#include <functional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <fsdp/core/error.hpp>

#include "../models/strict_json.hpp"
#include "jinja/lexer.hpp"
#include "jinja/parser.hpp"
#include "jinja/runner.hpp"

namespace fsdp::text {

struct ChatTemplate::State {
  std::string source;
  jinja::Program program;
  std::set<std::string, std::less<>> names;  // in its tags
};

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& source) {
  require<InputError>(text.size() <= 1'000'000, source, ": a chat template of more than 1,000,000 bytes");
  State state{.source = source, .program = jinja::parse(text, source), .names = {}};
  for (jinja::Token& token : jinja::tokens_of(text, source))
    if (token.kind == jinja::Kind::name) state.names.insert(std::move(token.text));
  return ChatTemplate(std::make_shared<const State>(std::move(state)));
}

RenderedChat ChatTemplate::render(std::string_view variables, const std::tm& clock) const {
  constexpr std::size_t any = static_cast<std::size_t>(-1);
  const nlohmann::ordered_json json =
      parse_strict_ordered(variables, "a template's variables",
                           {.depth = any, .values = any, .array = any, .text = any, .keep_digits = true});
  require(json.is_object(), "a template's variables are no JSON object");
  return render(jinja::Value::of(json), clock);
}

RenderedChat ChatTemplate::render(const jinja::Value& variables, const std::tm& clock) const {
  jinja::Runner runner(variables, clock);
  try {
    runner.run(state_->program);
  } catch (const InputError& error) {
    throw InputError(message(state_->source, ": line ", runner.line(), ": ", error.what()));
  }
  RenderedChat rendered{.text = runner.text(), .answers = {}};
  for (const auto& [begin, end] : runner.generations()) rendered.answers.push_back({begin, end});
  return rendered;
}

bool ChatTemplate::mentions(std::string_view name) const { return state_->names.contains(name); }

bool ChatTemplate::marks_answers() const { return state_->program.has_generation; }

}  // namespace fsdp::text
