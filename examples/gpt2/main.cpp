// SPDX-License-Identifier: Apache-2.0
// Trains a GPT-2 over bytes on files, two ranks with half of the weights each: gpt2 FILE... [--steps N]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include <comm/threads.hpp>
#include <fsdp/data/text_source.hpp>
#include <fsdp/fsdp.hpp>
#include <fsdp/train/trainer.hpp>

#include "model.hpp"

using Comm = fsdp::comm::Threads<>;
using Model = gpt2::Gpt2<fsdp::Stack<fsdp::FullyShard<>,                  // sharding: FSDP2
                                     Comm,                                // ranks are threads of this process
                                     fsdp::Bf16Mixed,                     // bf16 compute, fp32 main weights
                                     fsdp::tiling::TokensPerTile<128>>>;  // MLP and loss, 128 tokens at a time
static_assert(fsdp::check_model<Model>());

int main(int argc, char** argv) {
  fsdp::train::TrainOptions options{.steps = 100, .seq_len = 128, .batch_size = 8, .lr = 3e-3};
  options.launch.ranks = 2;
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--steps" && i + 1 < argc)
      options.steps = std::atoi(argv[++i]);
    else
      options.data.emplace_back(argv[i]);
  if (options.data.empty()) return std::fprintf(stderr, "usage: gpt2 FILE... [--steps N]\n"), 2;

  try {
    return fsdp::train::launch<Comm>(options.launch, [&](Comm& communicator) {
      const Model model(gpt2::Gpt2Config{}, options.units);
      const std::vector<std::filesystem::path> files(options.data.begin(), options.data.end());
      const fsdp::data::TextSource source(files, options.seq_len, 0.1, model.config().vocab_size, {});
      fsdp::train::Trainer<Model, fsdp::data::TextSource>(communicator, options, model, source, {}, {}).run();
    });
  } catch (const fsdp::Error& error) {
    return std::fprintf(stderr, "gpt2: %s\n", error.what()), 2;
  }
}
