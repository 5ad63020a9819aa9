// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/chat_session.hpp>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/trainer/generate/generation.hpp>
#include <tessera/trainer/generate/model_folder.hpp>
#include <tessera/trainer/generate/sampling.hpp>

namespace fsdp::train {
namespace {

constexpr std::size_t most_step_tokens = 64;  // with more new tokens, recompute the whole conversation in one pass
constexpr std::size_t most_line = 1 << 20;

std::filesystem::path tokenizer_file(const ChatOptions& options) {
  const std::optional<std::filesystem::path> file = tokenizer_of(options.generate.tokenizer, options.generate.model);
  require<InputError>(file.has_value(), "chat: --model ", options.generate.model,
                      " has no tokenizer.json; name one by --tokenizer");
  return *file;
}

std::string system_message(const ChatOptions& options) {
  return options.system.empty() ? "" : text::chat_message("system", options.system);
}

/// Warns if the template does not write the system message, or the user's messages.
void warn_of_missing_parts(const text::ChatFormat& format, const std::string& system) {
  std::string missing;
  try {
    format.prompt("[" + system + (system.empty() ? "" : ",") + text::chat_message("user", "tessera") + "]", &missing);
  } catch (const InputError&) {  // errors of the template are reported when it is used
  }
  if (!missing.empty()) print_warning("chat: " + missing);
}

}  // namespace

std::vector<std::int32_t> ChatWork::numbers(std::size_t room) const {
  std::vector<std::int32_t> numbers = {ends, anew, static_cast<std::int32_t>(position),
                                       static_cast<std::int32_t>(tokens.size())};
  numbers.insert(numbers.end(), tokens.begin(), tokens.end());
  numbers.resize(room + 4);
  return numbers;
}

ChatWork ChatWork::of(std::span<const std::int32_t> numbers) {
  const std::span tokens = numbers.subspan(4, static_cast<std::size_t>(numbers[3]));
  return {.ends = numbers[0] != 0,
          .anew = numbers[1] != 0,
          .position = numbers[2],
          .tokens = {tokens.begin(), tokens.end()}};
}

ChatSession::ChatSession(const ChatOptions& options, std::int64_t vocabulary)
    : format_(tokenizer_file(options), options.chat_template, text::clock_now()), options_(options) {
  require_vocabulary(format_.tokenizer(), tokenizer_file(options), vocabulary);
  warn_of(format_);
  messages_ = system_message(options);
  warn_of_missing_parts(format_, messages_);
  for (const std::string& text : options.generate.stop_ids) {
    const std::vector<std::int32_t> ids = parse_ids("stop-ids", text);
    stops_.insert(stops_.end(), ids.begin(), ids.end());
  }
  const text::AnswerEnd end = text::answer_end(format_);
  end_text_ = end.text;
  stops_.insert(stops_.end(), end.tokens.begin(), end.tokens.end());
  never_ = unsampled_ids(format_.tokenizer(), vocabulary, stops_);
}

bool ChatSession::read_line(std::FILE* in) {
  if (::isatty(::fileno(in)) != 0) std::fputs("> ", stderr);
  std::string line;
  for (int c = 0; (c = std::fgetc(in)) != EOF && c != '\n';) {
    require<InputError>(line.size() < most_line, "chat: a line of more than ", most_line, " bytes");
    line.push_back(static_cast<char>(c));
  }
  if (line == "/quit" || (line.empty() && std::feof(in) != 0)) return false;
  if (line == "/reset") {
    messages_ = system_message(options_);
  } else if (line.find_first_not_of(" \t\r") != line.npos) {
    const std::string before = messages_;
    messages_ += (messages_.empty() ? "" : ",") + text::chat_message("user", line);
    ask();
    if (!writing_) messages_ = before;
  }
  return true;
}

void ChatSession::ask() {
  const std::string text = format_.prompt("[" + messages_ + "]");
  const std::vector<text::TokenId> ids = format_.tokenizer().encode(text, false);
  const std::vector<std::int32_t> tokens(ids.begin(), ids.end());
  require<InputError>(!tokens.empty(), "chat: ", format_.name(), " makes no text of the conversation");
  // Reuses the KV cache of the common prefix. The last token is fed again, since its logits are needed.
  const auto differs = std::ranges::mismatch(tokens, std::span(tokens_).first(fed_)).in1;
  fed_ = std::min(static_cast<std::size_t>(differs - tokens.begin()), tokens.size() - 1);
  tokens_ = tokens;
  answer_begin_ = tokens_.size();
  if (static_cast<std::int64_t>(tokens_.size()) > options_.context) {
    print_sentence(message("the conversation has ", tokens_.size(), " tokens, and --context is ", options_.context,
                           "; /reset begins another"));
    fed_ = 0;
    tokens_.clear();
    return;
  }
  writing_ = true;
  answer_.clear();
  printed_ = 0;
  decoder_.emplace(format_.tokenizer(), false);
}

ChatWork ChatSession::next(std::FILE* in, std::int64_t prompt_tokens) {
  while (!writing_)
    if (!read_line(in)) return {.ends = true};
  const std::size_t left = tokens_.size() - fed_;
  if (fed_ == 0 || (left > most_step_tokens && static_cast<std::int64_t>(tokens_.size()) <= prompt_tokens)) {
    fed_ = std::min(tokens_.size(), static_cast<std::size_t>(prompt_tokens));
    return {.anew = true, .tokens = {tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(fed_)}};
  }
  ++fed_;
  return {.position = static_cast<std::int64_t>(fed_) - 1, .tokens = {tokens_[fed_ - 1]}};
}

void ChatSession::take(std::span<const float> logits) {
  if (fed_ < tokens_.size()) return;  // the prompt is not complete yet
  const double uniform = static_cast<double>(mixed(options_.generate.seed ^ mixed(draws_++)) >> 11) * 0x1p-53;
  const std::int32_t drawn = sample(logits, tokens_, options_.generate.sampling, uniform, never_);
  if (std::ranges::find(stops_, drawn) != stops_.end()) return answered(true);
  tokens_.push_back(drawn);
  answer_ += decoder_->push(static_cast<text::TokenId>(drawn));
  if (!end_text_.empty() && answer_.ends_with(end_text_)) {
    answer_.resize(answer_.size() - end_text_.size());
    return answered(true);
  }
  const auto count = static_cast<std::int64_t>(tokens_.size() - answer_begin_);
  if (count >= options_.generate.tokens || static_cast<std::int64_t>(tokens_.size()) >= options_.context)
    return answered(false);
  print(false);
}

void ChatSession::answered(bool whole) {
  answer_ += decoder_->finish();
  print(true);
  std::fputs(whole ? "\n" : " ...\n", stdout);
  std::fflush(stdout);
  writing_ = false;
  messages_ += "," + text::chat_message("assistant", answer_);
}

void ChatSession::print(bool last) {
  std::size_t held = 0;  // number of bytes that may be the beginning of the end text
  for (std::size_t size = std::min(end_text_.size(), answer_.size()); !last && held == 0 && size > 0; --size)
    if (answer_.ends_with(std::string_view(end_text_).substr(0, size))) held = size;
  const std::size_t end = std::max(printed_, answer_.size() - held);
  std::fwrite(answer_.data() + printed_, 1, end - printed_, stdout);
  std::fflush(stdout);
  printed_ = end;
}

}  // namespace fsdp::train
