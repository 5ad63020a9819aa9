// SPDX-License-Identifier: Apache-2.0
#include <fsdp/text/chat_template.hpp>

#include <utility>

#include <nlohmann/json.hpp>

#include <fsdp/core/error.hpp>

#include "jinja/parser.hpp"
#include "jinja/runner.hpp"

namespace fsdp::text {

struct ChatTemplate::State {
  std::string source;
  jinja::Program program;
};

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& source) {
  require<InputError>(text.size() <= 1'000'000, source, ": a chat template of more than 1,000,000 bytes");
  return ChatTemplate(std::make_shared<const State>(State{source, jinja::parse(text, source)}));
}

RenderedChat ChatTemplate::render(std::string_view variables, const std::tm& clock) const {
  const nlohmann::ordered_json json = nlohmann::ordered_json::parse(variables, nullptr, false);
  require(json.is_object(), "a template's variables are no JSON object");
  jinja::Runner runner(jinja::Value::of(json), clock);
  try {
    runner.run(state_->program);
  } catch (const InputError& error) {
    throw InputError(message(state_->source, ": line ", runner.line(), ": ", error.what()));
  }
  RenderedChat rendered{.text = runner.text(), .answers = {}};
  for (const auto& [begin, end] : runner.generations()) rendered.answers.push_back({begin, end});
  return rendered;
}

bool ChatTemplate::marks_answers() const { return state_->program.has_generation; }

}  // namespace fsdp::text
