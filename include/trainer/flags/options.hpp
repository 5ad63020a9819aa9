// SPDX-License-Identifier: Apache-2.0
/// @file
/// The options of each sub-command: plain structs with the defaults that `--help` prints, and the largest numbers that
/// flags accept. Policies and the optimizer are passed separately, except for the ranks that share each sequence. To
/// add a flag: a field here and a line in src/trainer/flags/bind.cpp, which specifies whether results depend on it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/fsdp/training/step_size.hpp>
#include <tessera/trainer/data/corpus.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

namespace fsdp::train {

inline constexpr std::int64_t most_ranks = 65'536;  ///< largest number of ranks that --dry-run can plan
inline constexpr std::int64_t most_steps = 1'000'000'000'000;
inline constexpr std::int64_t most_sequences = 1 << 20;  ///< largest number of sequences in a step
inline constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();  ///< of a micro-batch
inline constexpr std::int64_t most_blocks = 1 << 20;
inline constexpr std::int64_t most_elements = std::int64_t{1} << 50;

/// The range [least, most] of whole numbers.
constexpr Range<std::int64_t> counts_up_to(std::int64_t most, std::int64_t least = 1) {
  return {.least = least, .most = most};
}

/// The shape of the schedule after warm-up.
enum class LrShape : std::uint8_t { constant, linear, cosine, wsd };

/// A learning-rate schedule.
struct LrSchedule {
  LrShape shape = LrShape::constant;
  double peak = 1e-3;
  std::int64_t warmup = 0;     ///< number of warm-up steps; the first step's rate is peak / warmup
  std::int64_t steps = 1;      ///< number of steps of the whole run
  double last_fraction = 0.1;  ///< rate of the last step as a fraction of the peak; not used by constant
  std::int64_t decay = 0;      ///< wsd: length of the final decay in steps; 0: a tenth of the run, at least one

  friend bool operator==(const LrSchedule&, const LrSchedule&) = default;
};

/// Returns the learning rate of a step; the first is step 0. After a linear warm-up to the peak:
/// - constant: stays at the peak;
/// - linear, cosine: falls from then to last_fraction x peak at the last step, along a line or half a cosine;
/// - wsd (warm-up, stable, decay): stays at the peak, then falls linearly over the last `decay` steps.
double lr_at(const LrSchedule& schedule, std::int64_t step);

/// `--model` and the flags for its sizes. tessera/trainer/flags/model_choice.hpp creates a model from them.
struct ModelChoice {
  std::string name = {};     ///< a preset, a folder with config.json and weights, or empty for the default
  GivenValues values = {};   ///< values by flag name, such as {"hidden", "64"}
  std::string adapter = {};  ///< folder of adapters in PEFT's format, for a folder's model; empty: no adapters

  friend bool operator==(const ModelChoice&, const ModelChoice&) = default;
};

/// The reaction of a run to SIGTERM or SIGINT: save a checkpoint and end, or end right after the step.
enum class OnSignal : std::uint8_t { save, stop };

/// Whether a step is captured as a CUDA graph and replayed. `automatic`: on one rank, if all steps are uniform.
enum class CudaGraphs : std::uint8_t { automatic, on, off };

/// How text and conversations are tokenized.
struct TextOptions {
  std::string tokenizer = {};          ///< tokenizer.json or its folder; empty: the one in the model's folder, or none
  std::string field = "text";          ///< the key of the text in a line of JSONL
  std::string end_token = {};          ///< see data::TokenizeRequest
  std::string cache = {};              ///< folder for the token files; empty: TextInputs::cache
  std::string chat_template = "auto";  ///< see text::ChatFormat
  text::Learn learn = text::Learn::all;        ///< which answers of conversations are trained on
  data::OnLong on_long = data::OnLong::error;  ///< handling of conversations that are longer than a sequence

  friend bool operator==(const TextOptions&, const TextOptions&) = default;
};

/// Options of `tessera train`, by flag (src/trainer/flags/bind.cpp and docs/commands/train.md).
struct TrainOptions {
  std::vector<std::string> data = {};
  data::TokenFormat data_format = data::TokenFormat::automatic;
  TextOptions text = {};
  ModelChoice model = {};
  bool from_scratch = false;  ///< initialize weights from the seed, even if --model has weights
  std::int64_t steps = 1000;
  std::int64_t until = 0;  ///< last step of this run, at most `steps`, which alone determines the schedule; 0: `steps`
  std::int64_t seq_len = 512;
  std::int64_t batch_size = 8;  ///< sequences per step, over all ranks and micro-batches
  std::int64_t grad_accum = 1;  ///< number of micro-batches; 1 if the strategy has pieces
  Ulysses sequence = {};        ///< number of ranks that share each sequence; above 1 if the stack has Ulysses
  std::optional<data::DocumentSeparator> document_separator = {};  ///< empty: each window is a document
  double lr = 1e-3;
  LrShape lr_schedule = LrShape::cosine;
  std::int64_t warmup = 0;
  std::int64_t lr_decay_steps = 0;  ///< wsd: length of the final decay in steps; 0: a tenth of the run
  double clip = 1.0;                ///< largest global gradient norm; 0: no clipping
  std::string loss_scale = "off";   ///< off, dynamic, or dynamic:INITIAL
  UnitOptions units = {};
  std::uint64_t seed = 0;
  double validation_fraction = 0.01;
  std::int64_t validation_every = 0;  ///< steps between validations; 0: only at the end
  std::int64_t patience = 0;          ///< number of held-out losses without improvement after which to stop; 0: never
  std::optional<std::string> sample_prompt = {};  ///< prompt that the model continues at each validation
  std::int64_t sample_tokens = 64;                ///< largest number of new tokens in a sample
  std::int64_t validation_windows = 256;          ///< largest number of held-out windows, evenly spread; 0: all
  std::optional<std::string> checkpoint_dir = {};
  std::int64_t checkpoint_every = 0;       ///< steps between checkpoints; 0: only at the end
  std::int64_t keep = 0;                   ///< number of newest checkpoints to keep; 0: all
  std::optional<std::string> resume = {};  ///< a checkpoint, a directory of them, or "auto"
  bool resume_anyway = false;              ///< resume even if data or batches differ from the checkpoint's
  OnSignal on_signal = OnSignal::save;
  std::optional<std::string> metrics = {};
  std::optional<std::string> digests = {};  ///< file for digests of all that each step computes
  std::int64_t verify_every = 0;            ///< steps between verifications by another rank (Verification); 0: never
  std::optional<std::string> tensorboard = {};  ///< directory of the event files
  std::optional<std::string> trace = {};
  std::optional<std::string> cluster = {};  ///< a predefined cluster, or a TOML file (train::read_cluster)
  CudaGraphs cuda_graphs = CudaGraphs::automatic;
  std::int64_t log_every = 1;  ///< steps between console lines; the metrics file gets every step
  bool dry_run = false;
  std::int64_t ranks = 0;            ///< number of ranks of the dry run; 0: the number that a run would start
  std::int64_t document_length = 0;  ///< for plans: tokens of a typical document; 0: each sequence is one document
  std::optional<std::string> memory = {};  ///< bytes per rank for budgets of auto; empty: its share of free memory
  bool print_schedule = false;
  LaunchOptions launch = {};

  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

/// Options of `tessera plan` in addition to the options of `train`.
struct PlanOptions {
  bool json = false;  ///< print one JSON object instead of a table

  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

/// Options of `tessera eval`.
struct EvalOptions {
  std::string model = {};
  std::string adapter = {};  ///< see ModelChoice
  std::vector<std::string> data = {};
  data::TokenFormat data_format = data::TokenFormat::automatic;
  TextOptions text = {};
  std::int64_t seq_len = 512;
  std::int64_t batch_size = 1;
  Ulysses sequence = {};        ///< see TrainOptions
  FloatWeights precision = {};  ///< see UnitOptions
  std::int64_t windows = 0;     ///< largest number of windows, evenly spread; 0: all
  std::optional<data::DocumentSeparator> document_separator = {};
  LaunchOptions launch = {};

  friend bool operator==(const EvalOptions&, const EvalOptions&) = default;
};

/// Sampling parameters. Applied in this order: repetition_penalty, temperature, top_k, top_p, min_p.
struct Sampling {
  double temperature = 0.8;  ///< 0: always the likeliest token; top_k, top_p and min_p then have no effect
  std::int64_t top_k = 0;    ///< keeps the k likeliest tokens, and ties with the last of them; 0: all
  double top_p = 1;          ///< keeps the fewest likeliest tokens whose probabilities sum to at least this; 1: all
  double min_p = 0;          ///< keeps tokens with at least this fraction of the top probability; 0: all
  double repetition_penalty = 1;  ///< divides positive logits of seen tokens and multiplies negative ones; 1: off

  friend bool operator==(const Sampling&, const Sampling&) = default;
};

/// Options of `tessera generate`.
struct GenerateOptions {
  std::string model = {};
  std::string adapter = {};                  ///< see ModelChoice
  FloatWeights precision = {};               ///< see UnitOptions
  std::string tokenizer = {};                ///< tokenizer.json or its folder; empty: the one in the model's folder
  std::string prompt = {};                   ///< text; without a tokenizer its bytes are tokens
  std::vector<std::string> prompt_ids = {};  ///< instead of `prompt`: a batch of prompts, each such as "1,2,3"
  std::int64_t tokens = 200;                 ///< largest number of new tokens per sequence
  Sampling sampling = {};
  std::uint64_t seed = 0;
  std::vector<std::string> stop_ids = {};  ///< "2" or "2,3": a sequence ends after any of these tokens
  bool no_cache = false;                   ///< no KV cache: recompute the whole sequence for every token
  LaunchOptions launch = {};

  friend bool operator==(const GenerateOptions&, const GenerateOptions&) = default;
};

/// Options of `tessera chat`: the options of `generate`, and the options of a conversation.
struct ChatOptions {
  /// `tokens`: largest number of tokens in an answer; the prompts are not used.
  GenerateOptions generate = {.tokens = 1024};
  std::string chat_template = "auto";  ///< see text::ChatFormat
  std::string system = {};             ///< the system message; empty: no system message
  std::int64_t context = 4096;  ///< largest number of tokens in the conversation; limited to the model's positions

  friend bool operator==(const ChatOptions&, const ChatOptions&) = default;
};

/// Largest number of prompt tokens that one pass of a chat computes.
inline constexpr std::int64_t prompt_pass_tokens = 512;

/// Returns the step after which a run ends.
std::int64_t last_step(const TrainOptions& options);

/// Returns the number of groups of ranks that share each sequence. Throws InputError if the ranks do not fill them.
std::int64_t groups_of(const Ulysses& sequence, std::int64_t ranks);
/// Returns the size of a rank's step. `pieces`: the strategy's number of pieces (sharding::Facts::pieces), which
/// together with the number of groups of ranks determines the number of micro-batches; 0: steps are not cut into
/// pieces. Throws InputError unless the batch can be divided over this number of ranks.
StepSize step_size(const TrainOptions& options, std::int64_t ranks, int pieces);
/// Throws InputError with one sentence about the first invalid value. `flags`: those that are bound to the options.
/// Returns step_size.
StepSize validate(const FlagSet& flags, const TrainOptions& options, std::int64_t ranks, int pieces = 0);
void validate(const FlagSet& flags, const EvalOptions& options);      ///< the same
void validate(const FlagSet& flags, const GenerateOptions& options);  ///< the same
/// The same for sampling and stop ids: those options of generate and chat that a model's folder can set.
void validate_sampling(const FlagSet& flags, const GenerateOptions& options);

/// Returns why a graph of one step cannot be replayed as the others, such as "--verify-every makes steps differ"; empty
/// if the options let all steps be uniform.
std::string steps_differ(const TrainOptions& options);

/// Conversions for flags (tessera/trainer/flags/flag_set.hpp), by the names of the values.
void from_text(std::string_view flag, std::string_view text, OnSignal& value);
void from_text(std::string_view flag, std::string_view text, CudaGraphs& value);  ///< the same; true is on, false off
void from_text(std::string_view flag, std::string_view text, LrShape& value);     ///< the same
void from_text(std::string_view flag, std::string_view text, Reductions& value);  ///< the same
std::string to_text(OnSignal value);
std::string to_text(CudaGraphs value);
std::string to_text(LrShape value);
std::string to_text(Reductions value);

/// Parses --loss-scale; returns nothing if it is off. Throws InputError.
std::optional<DynamicLossScale> loss_scale_of(const TrainOptions& options);

/// Parses token ids such as "1,2,3". Throws an InputError that identifies the flag.
std::vector<std::int32_t> parse_ids(std::string_view flag, std::string_view text);

/// Returns the learning-rate schedule that the options describe.
LrSchedule schedule_of(const TrainOptions& options);

}  // namespace fsdp::train
