// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a user asks of each sub-command: plain values, with the defaults that `--help` prints.
///
/// Policies and the optimizer are no part of it: they are arguments of their own. To add a flag: a field here and a
/// line in src/train/bind.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/data/corpus.hpp>
#include <fsdp/data/packed_conversations.hpp>
#include <fsdp/module/units.hpp>
#include <fsdp/precision/loss_scale.hpp>
#include <fsdp/train/flag_set.hpp>
#include <fsdp/train/learning_rate.hpp>
#include <fsdp/train/sampling.hpp>

namespace fsdp::train {

/// `--model` and the sizes that are given besides. What they mean is the model's: train/model_choice.hpp.
struct ModelChoice {
  std::string name = {};     ///< a preset, a folder with config.json and weights, or empty for the default
  GivenValues values = {};   ///< such as {"hidden", "64"}
  std::string adapter = {};  ///< PEFT's folder of adapters for a folder's model; empty: none

  friend bool operator==(const ModelChoice&, const ModelChoice&) = default;
};

/// What a run does that SIGTERM or SIGINT ends.
enum class OnSignal : std::uint8_t { save, stop };

/// How ranks are started, and what each may take.
struct LaunchOptions {
  std::int64_t ranks = 1;        ///< where the program starts them itself, as Threads does; else the launcher knows
  std::int64_t threads = 0;      ///< per rank; 0: cores / ranks, at least 1
  double deadline_seconds = 20;  ///< of every collective: how long a rank waits for others
  double device_deadline_seconds = 600;  ///< how long a rank waits for its own device
  double disk_deadline_seconds = 600;    ///< how long a rank waits for others which read or write files
  bool windows = true;                   ///< ranks of one machine under MPI read each other's memory

  friend bool operator==(const LaunchOptions&, const LaunchOptions&) = default;
};

/// How text becomes tokens.
struct TextOptions {
  std::string tokenizer = {};          ///< tokenizer.json or its folder; empty: the one in the model's folder, or none
  std::string field = "text";          ///< of a line of JSONL
  std::string end_token = {};          ///< as data::TokenizeRequest
  std::string cache = {};              ///< folder of the tokens; empty: a run's own place
  std::string chat_template = "auto";  ///< as text::ChatFormat
  data::OnLong on_long = data::OnLong::error;  ///< conversations that are longer than a sequence

  friend bool operator==(const TextOptions&, const TextOptions&) = default;
};

/// Of `tessera train`: a field for each flag, whose meaning is in src/train/bind.cpp and docs/commands/train.md.
struct TrainOptions {
  std::vector<std::string> data = {};
  data::TokenFormat data_format = data::TokenFormat::automatic;
  TextOptions text = {};
  ModelChoice model = {};
  bool from_scratch = false;  ///< weights from the seed, whatever --model holds
  std::int64_t steps = 1000;
  std::int64_t seq_len = 512;
  std::int64_t batch_size = 8;                          ///< sequences per step, over all ranks and micro-batches
  std::int64_t grad_accum = 1;                          ///< micro-batches
  std::optional<std::int64_t> document_separator = {};  ///< a token; none: every window is one document
  double lr = 1e-3;
  LrShape lr_schedule = LrShape::cosine;
  std::int64_t warmup = 0;
  std::int64_t lr_decay_steps = 0;  ///< wsd: of the fall at the end; 0: a tenth of the run
  double clip = 1.0;                ///< global gradient norm; 0 is off
  std::string loss_scale = "off";   ///< off, dynamic, or dynamic:INITIAL
  Units units = {};
  std::uint64_t seed = 0;
  double validation_fraction = 0.01;
  std::int64_t validation_every = 0;      ///< steps; 0: only at the end
  std::int64_t patience = 0;              ///< held-out losses in a row that are no lower than the best; 0: any number
  std::string sample_prompt = {};         ///< what the text of each validation goes on from; empty: none is written
  std::int64_t sample_tokens = 64;        ///< of that text, at most
  std::int64_t validation_windows = 256;  ///< at most, evenly spread; 0: all
  std::string checkpoint_dir = {};
  std::int64_t checkpoint_every = 0;  ///< steps; 0: only at the end
  std::int64_t keep = 0;              ///< newest checkpoints that stay; 0: all
  std::string resume = {};            ///< a checkpoint, a directory of them, or "auto"
  bool resume_anyway = false;         ///< with data or batches whose order is not the checkpoint's
  OnSignal on_signal = OnSignal::save;
  std::string metrics = {};
  std::string tensorboard = {};  ///< a directory
  std::string trace = {};
  bool cuda_graphs = false;    ///< steps that are alike are launched as one graph
  std::int64_t log_every = 1;  ///< steps between console lines; the metrics file gets every step
  bool dry_run = false;
  std::int64_t ranks = 0;   ///< of the dry run; 0: those that would be started
  std::string memory = {};  ///< of each rank, for a budget of what is left; empty: its part of the machine's
  bool print_schedule = false;
  LaunchOptions launch = {};
  std::vector<std::string> given = {};  ///< flags that the user set, without dashes, sorted

  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

/// Of `tessera eval`.
struct EvalOptions {
  std::string model = {};
  std::string adapter = {};  ///< as in ModelChoice
  std::vector<std::string> data = {};
  data::TokenFormat data_format = data::TokenFormat::automatic;
  TextOptions text = {};
  std::int64_t seq_len = 512;
  std::int64_t batch_size = 1;
  std::int64_t windows = 0;  ///< at most, evenly spread; 0: all
  std::optional<std::int64_t> document_separator = {};
  LaunchOptions launch = {};
  std::vector<std::string> given = {};

  friend bool operator==(const EvalOptions&, const EvalOptions&) = default;
};

/// Of `tessera generate`.
struct GenerateOptions {
  std::string model = {};
  std::string adapter = {};                  ///< as in ModelChoice
  std::string tokenizer = {};                ///< tokenizer.json or its folder; empty: the one in the model's folder
  std::string prompt = {};                   ///< text, or bytes where there is no tokenizer; or
  std::vector<std::string> prompt_ids = {};  ///< each "1,2,3", the prompts of a batch
  std::int64_t tokens = 200;                 ///< new ones of each sequence, at most
  Sampling sampling = {};
  std::uint64_t seed = 0;
  std::vector<std::string> stop_ids = {};  ///< "2" or "2,3": a sequence ends behind any of them
  bool no_cache = false;                   ///< every token computes its whole sequence
  LaunchOptions launch = {};
  std::vector<std::string> given = {};

  friend bool operator==(const GenerateOptions&, const GenerateOptions&) = default;
};

/// Of `tessera chat`: as `generate` writes, and what a conversation needs besides.
struct ChatOptions {
  GenerateOptions generate = {.tokens = 1024};  ///< `tokens`: of an answer; prompts are none of it
  std::string chat_template = "auto";           ///< as text::ChatFormat
  std::string system = {};                      ///< the first message; empty: none
  std::int64_t context = 4096;  ///< tokens of the whole conversation, at most those that the model knows

  friend bool operator==(const ChatOptions&, const ChatOptions&) = default;
};

inline constexpr std::int64_t prompt_pass_tokens = 512;  ///< of a conversation's begin, which a chat reads in one pass

/// Whether the user set a flag, named without dashes.
template <class Options>
bool is_given(const Options& options, std::string_view flag) {
  return std::find(options.given.begin(), options.given.end(), flag) != options.given.end();
}

/// Throws InputError with one sentence about the first value that cannot work,
void validate(const LaunchOptions& options);
/// also on this number of ranks.
void validate(const TrainOptions& options, std::int64_t ranks);
/// As the first.
/// @{
void validate(const EvalOptions& options);
void validate(const GenerateOptions& options);
void validate(const ChatOptions& options);
/// @}

/// As flags are written (train/flag_set.hpp).
void from_text(std::string_view flag, std::string_view text, OnSignal& value);
std::string to_text(OnSignal value);

/// What --loss-scale says; nothing where it is off.
std::optional<DynamicLossScale> loss_scale_of(const TrainOptions& options);

/// Threads of each rank: those asked for, or the cores of this machine divided by its ranks.
std::int64_t threads_per_rank(std::int64_t asked, std::int64_t cores, std::int64_t ranks_here);

/// The schedule that the options describe.
LrSchedule schedule_of(const TrainOptions& options);

}  // namespace fsdp::train
