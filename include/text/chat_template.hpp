// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chat templates: render conversations with a model folder's own template, in a subset of Jinja, as `transformers`
/// does.
///
/// docs/conversations.md lists the supported subset. Any other feature in a template is an error that identifies it.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text {

namespace jinja {
class Value;
}

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

/// A rendered conversation.
struct RenderedChat {
  std::string text;
  std::vector<TextRange> answers;  ///< the text in {% generation %} blocks
  std::size_t steps = 0;           ///< steps of work that rendering took
};

/// A parsed and checked template. Copies share its data; several threads can render concurrently.
class ChatTemplate {
 public:
  /// Parses a template. `source`: its name for errors. Throws InputError "`source`: line N: ...".
  static ChatTemplate parse(std::string_view text, const std::string& source);

  /// Renders the template. `variables`: a JSON object with `messages`, `tools`, `add_generation_prompt`, `bos_token`
  /// and so on; the order of keys is kept. `clock`: the time that strftime_now() formats. Throws InputError
  /// "`source`: line N: ..." if the template raises an exception, uses something undefined, or does not terminate.
  RenderedChat render(std::string_view variables, const std::tm& clock) const;

  /// Renders the template with variables that are already a dict.
  RenderedChat render(const jinja::Value& variables, const std::tm& clock) const;

  /// Returns whether a name, such as a variable's, occurs in the template's tags.
  bool mentions(std::string_view name) const;

  /// Returns whether the template may read a key of an object: the key occurs in its tags as a name, or as a word in a
  /// string literal.
  bool may_read(std::string_view key) const;

  /// Returns whether the template marks answers by {% generation %} blocks.
  bool marks_answers() const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace fsdp::text
