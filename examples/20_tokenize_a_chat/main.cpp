// SPDX-License-Identifier: Apache-2.0
// Text processing only: reads a tokenizer.json and a chat template, prints the prompt of a model and the tokens of a
// conversation, with a star at each token that a model learns.
//
//   20_tokenize_a_chat FOLDER/tokenizer.json [TEMPLATE]
//
// TEMPLATE is auto (the template in the folder), chatml, llama3, qwen3, plain, or a file. Change next: the messages.
#include <cstddef>
#include <cstdio>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/chat.hpp>

int main(int argc, char** argv) try {
  if (argc < 2) throw fsdp::InputError("usage: 20_tokenize_a_chat FOLDER/tokenizer.json [TEMPLATE]");
  const fsdp::text::ChatFormat format(argv[1], argc > 2 ? argv[2] : "auto", fsdp::text::training_clock());
  std::printf("%s\n\n", format.prompt(R"([{"role": "user", "content": "What is 2 + 3?"}])").c_str());

  const fsdp::text::ChatTokens chat = format.encode(
      R"({"messages": [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "It is 5."}]})",
      "the conversation");
  fsdp::text::StreamDecoder decoder(format.tokenizer(), false);
  for (std::size_t i = 0; i < chat.ids.size(); ++i)
    std::printf("%6u %c %s\n", chat.ids[i], chat.answers[i] ? '*' : ' ', decoder.push(chat.ids[i]).c_str());
} catch (const fsdp::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
