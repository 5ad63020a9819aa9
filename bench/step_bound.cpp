// SPDX-License-Identifier: Apache-2.0

#include "step_bound.hpp"

#include <algorithm>
#include <chrono>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>

namespace fsdp::bench {
namespace {

constexpr std::int64_t square_size = 1024;
constexpr int squares = 4;
constexpr std::int64_t copied = std::int64_t{64} << 20;
constexpr std::int64_t most_triad_bytes = std::int64_t{768} << 20;  // larger than any cache; more only costs time

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

StepBound::StepBound(const StepWork& work)
    : attention_flops_(static_cast<double>(work.attention_flops)),
      elementwise_bytes_(static_cast<double>(work.elementwise_bytes)),
      optimizer_bytes_(static_cast<double>(work.optimizer_bytes)),
      matmuls_(work.matmuls, work.activation_bytes, work.threads),
      square_(calibrate::square_matmuls(work.compute, square_size, squares), 0, work.threads),
      copies_(copied, work.threads),
      triad_(std::min(work.optimizer_bytes, most_triad_bytes), work.threads) {}

void StepBound::add_to(Rounds& rounds) {
  matmuls_case_ = rounds.add([this] { matmuls_.run(); });
  square_case_ = rounds.add([this] { square_.run(); });
  copies_case_ = rounds.add([this] { copies_.run(); });
  triad_case_ = rounds.add([this] { triad_.run(); });
}

double StepBound::attention_seconds(const Rounds& rounds, std::size_t round) const {
  return attention_flops_ / square_.flops() * rounds.seconds(square_case_, round);
}

double StepBound::elementwise_seconds(const Rounds& rounds, std::size_t round) const {
  return elementwise_bytes_ / static_cast<double>(2 * copies_.bytes()) * rounds.seconds(copies_case_, round);
}

double StepBound::optimizer_seconds(const Rounds& rounds, std::size_t round) const {
  return optimizer_bytes_ / static_cast<double>(triad_.bytes()) * rounds.seconds(triad_case_, round);
}

double StepBound::seconds(const Rounds& rounds, std::size_t round) const {
  return rounds.seconds(matmuls_case_, round) + attention_seconds(rounds, round) + elementwise_seconds(rounds, round) +
         optimizer_seconds(rounds, round);
}

void StepBound::add_parts(Line& line, const Rounds& rounds) const {
  const auto milliseconds = [&](double (StepBound::*part)(const Rounds&, std::size_t) const) {
    return 1e3 * rounds.median_of([&](std::size_t round) { return (this->*part)(rounds, round); });
  };
  const double copied_bytes = static_cast<double>(2 * copies_.bytes());  // each byte is read and written
  line.add("floor_matmul_ms", 1e3 * rounds.median_seconds(matmuls_case_))
      .add("floor_attention_ms", milliseconds(&StepBound::attention_seconds))
      .add("floor_elementwise_ms", milliseconds(&StepBound::elementwise_seconds))
      .add("floor_optimizer_ms", milliseconds(&StepBound::optimizer_seconds))
      .add("matmul_gflops", square_.flops() / rounds.median_seconds(square_case_) * 1e-9)
      .add("copy_gb_per_second", copied_bytes / rounds.median_seconds(copies_case_) * 1e-9)
      .add("triad_gb_per_second", static_cast<double>(triad_.bytes()) / rounds.median_seconds(triad_case_) * 1e-9)
      .add("elementwise_bytes", static_cast<std::int64_t>(elementwise_bytes_));
}

Observer PhaseClock::observer() {
  return {.before = [](void* self, const sharding::Task&) { static_cast<PhaseClock*>(self)->begin_ = now(); },
          .after =
              [](void* self, const sharding::Task& task) {
                auto& clock = *static_cast<PhaseClock*>(self);
                const double passed = static_cast<double>(now() - clock.begin_) * 1e-6;
                using sharding::Action;
                switch (task.action) {
                  case Action::forward: clock.phases_.forward_ms += passed; break;
                  case Action::loss: clock.phases_.loss_ms += passed; break;
                  case Action::backward: clock.phases_.backward_ms += passed; break;
                  default: clock.phases_.exchange_ms += passed; break;
                }
              },
          .state = this};
}

LlamaConfig step_model(const BenchOptions& options, bool adapters) {
  if (adapters) {
    LlamaConfig config = step_model(options);
    config.lora.rank = options.lora_rank;
    return config;
  }
  if (!options.model.empty()) return LlamaConfig::read(options.model);
  require<InputError>(options.hidden % options.heads == 0, "--hidden ", options.hidden,
                      " is not a multiple of --heads ", options.heads, "; change one of them");
  return {.vocab_size = options.vocab > 0 ? options.vocab : 8192,
          .hidden_size = options.hidden,
          .intermediate_size = options.intermediate > 0 ? options.intermediate : 2816,
          .layers = options.layers,
          .heads = options.heads,
          .kv_heads = options.kv_heads,
          .head_dim = options.hidden / options.heads,
          .tied = false,
          .max_position_embeddings = std::max<std::int64_t>(options.seq_len, 4096)};
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary, int rank) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::uint64_t key = mixed(static_cast<std::uint64_t>(rank));
  for (std::int32_t& token : tokens) {
    key = mixed(key);
    token = static_cast<std::int32_t>(key % static_cast<std::uint64_t>(vocabulary));
  }
  return tokens;
}

}  // namespace fsdp::bench
