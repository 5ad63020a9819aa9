// SPDX-License-Identifier: Apache-2.0
/// @file
/// Conversations as texts: a model folder's own template, a subset of Jinja, as `transformers` renders it.
///
/// docs/conversations.md lists what a template may use. Anything else is refused by its name when the template is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::text {

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

/// A rendered conversation.
struct RenderedChat {
  std::string text;
  std::vector<TextRange> answers;  ///< what stood in {% generation %} blocks
};

/// A template that was read and checked. Copies share it; any number of threads may render.
class ChatTemplate {
 public:
  /// Reads a template's text; `source` is what errors call it. Throws InputError "`source`: line N: ...".
  static ChatTemplate parse(std::string_view text, const std::string& source);

  /// The text for variables, a JSON object of `messages`, `tools`, `add_generation_prompt`, `bos_token` and so on,
  /// whose keys keep their order. `clock` is what strftime_now() tells. Throws InputError "`source`: line N: ..." where
  /// the template refuses them, uses what is not there, or runs without end.
  RenderedChat render(std::string_view variables, const std::tm& clock) const;

  /// Whether the template marks what the model writes, by {% generation %}.
  bool marks_answers() const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace fsdp::text
