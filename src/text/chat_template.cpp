// SPDX-License-Identifier: Apache-2.0
#include <tessera/text/chat_template.hpp>

#include <functional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "../fsdp/core/strings.hpp"
#include "budget.hpp"
#include "jinja/runner.hpp"
#include "jinja/syntax/syntax.hpp"

namespace fsdp::text {

namespace {

// An ordinary template takes 1 to 10 steps for each byte of a conversation. The longest published templates have about
// 20,000 bytes.
constexpr std::size_t most_template_size = 1'000'000;
constexpr std::size_t base_steps = 20'000, steps_per_template_byte = 10, steps_per_byte = 100;
constexpr std::size_t base_memory = std::size_t{128} << 20, memory_per_byte = 64;
constexpr JsonLimits variable_limits{
    .depth = 100, .values = 10'000'000, .array = 1'000'000, .text = 1'000'000'000, .keep_digits = true};
const Budget::Task rendering = {
    .name = "the template",
    .advice =
        "its loops or values grow faster than the conversation; take another one, such as --chat-template chatml"};

}  // namespace

struct ChatTemplate::State {
  std::string source;
  jinja::Program program;
  std::set<std::string, std::less<>> names;  // names in its tags
  std::set<std::string, std::less<>> words;  // words of string literals in its tags, such as "a" and "b" of "a.b"
  std::size_t bytes = 0;
};

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& source) {
  require<InputError>(text.size() <= most_template_size, source, ": a chat template of more than 1,000,000 bytes");
  State state{.source = source, .program = jinja::parse(text, source), .names = {}, .words = {}, .bytes = text.size()};
  for (jinja::Token& token : jinja::tokens_of(text, source)) {
    if (token.kind == jinja::Kind::string)
      for (const std::string_view word : split_at(token.text, '.')) state.words.emplace(word);
    if (token.kind == jinja::Kind::name) state.names.insert(std::move(token.text));
  }
  return ChatTemplate(std::make_shared<const State>(std::move(state)));
}

RenderedChat ChatTemplate::render(std::string_view variables, const std::tm& clock) const {
  const nlohmann::ordered_json json = parse_strict_ordered(variables, "a template's variables", variable_limits);
  require(json.is_object(), "a template's variables are no JSON object");
  return render(jinja::Value::of(json), clock);
}

RenderedChat ChatTemplate::render(const jinja::Value& variables, const std::tm& clock) const {
  const std::size_t size = variables.weight();  // number of values, plus bytes of texts
  Budget budget(rendering, size,
                {.base = base_steps + steps_per_template_byte * state_->bytes, .per_byte = steps_per_byte});
  const jinja::Spending spending(budget, base_memory + memory_per_byte * (state_->bytes + size));
  jinja::Runner runner(variables, clock);
  try {
    runner.run_body(state_->program.body);
  } catch (const InputError& error) {
    throw InputError(message(state_->source, ": line ", runner.line(), ": ", error.what()));
  }
  return {.text = runner.text(), .answers = runner.generations(), .steps = budget.spent()};
}

bool ChatTemplate::mentions(std::string_view name) const { return state_->names.contains(name); }

bool ChatTemplate::may_read(std::string_view key) const { return mentions(key) || state_->words.contains(key); }

bool ChatTemplate::marks_answers() const { return state_->program.has_generation; }

}  // namespace fsdp::text
