// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/options.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/flags/flag_values.hpp>

#include "../../fsdp/core/strings.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp::train {
namespace {

constexpr ValueNames<OnSignal::stop> signal_names("save", "stop");
constexpr ValueNames<CudaGraphs::off> graph_names("auto", "on", "off");
constexpr ValueNames<LrShape::wsd> shape_names("constant", "linear", "cosine", "wsd");
constexpr ValueNames<Reductions::fast> reductions_names("deterministic", "fast");

/// Throws InputError for a given flag that the kind of data does not use.
template <class Options>
void check_data(const FlagSet& flags, const Options& o) {
  const bool chat = o.data_format == data::TokenFormat::chat;
  for (const char* flag : {"chat-template", "learn", "on-long"})
    require<InputError>(chat || !flags.is_given(flag), "--", flag, " is for conversations, and --data-format is ",
                        to_text(o.data_format), "; say --data-format chat, or leave it out");
  const bool encoded = chat || o.data_format == data::TokenFormat::automatic;
  for (const char* flag : {"end-token", "text-field", "token-cache"})
    require<InputError>(encoded || !flags.is_given(flag), "--", flag, " is for text that a tokenizer reads, and ",
                        "--data-format is ", to_text(o.data_format), "; leave one of them out");
  for (const char* flag : {"document-separator", "text-field"})
    require<InputError>(!chat || !flags.is_given(flag), "--", flag,
                        " is for text, and --data-format is chat; leave one ", "of them out");
}

/// Throws InputError unless the options allow a step to be cut into pieces. Returns its number of micro-batches.
int micro_batches_of(const TrainOptions& o, std::int64_t groups, int pieces) {
  data::check_pieces(o.batch_size, pieces);
  const int micro_batches = sharding::micro_batches_of(pieces, static_cast<int>(groups));
  require<InputError>(o.grad_accum == 1 || o.grad_accum == micro_batches, "--grad-accum ", o.grad_accum, ": ", pieces,
                      " pieces on ", readers_text(groups, o.sequence.ranks), " are ", micro_batches,
                      micro_batches == 1 ? " micro-batch" : " micro-batches",
                      ", which the pieces set (--sharding ...:pieces=", pieces, "); leave --grad-accum out");
  require<InputError>(
      o.units.replicated.empty(),
      "--replicate: parameters that are whole on every rank add up each rank's gradients first, so that "
      "results would depend on the number of ranks; leave out either --replicate or the pieces "
      "(--sharding ...:pieces=",
      pieces, ")");
  return micro_batches;
}

}  // namespace

std::int64_t groups_of(const Ulysses& sequence, std::int64_t ranks) {
  check_ranks_per_sequence(sequence.ranks, ranks);
  return ranks / sequence.ranks;
}

StepSize step_size(const TrainOptions& o, std::int64_t ranks, int pieces) {
  const std::int64_t groups = groups_of(o.sequence, ranks);
  if (pieces == 0) data::check_batch(o.batch_size, groups, o.grad_accum, o.sequence.ranks);
  return {.sequences = o.batch_size / (pieces > 0 ? pieces : groups * o.grad_accum),
          .sequence_length = o.seq_len,
          .ranks_per_sequence = o.sequence.ranks,
          .middle_parts = o.sequence.parts,
          .micro_batches = pieces > 0 ? micro_batches_of(o, groups, pieces) : static_cast<int>(o.grad_accum),
          .threads = static_cast<int>(o.launch.threads),
          .logit_rows = o.sample_prompt ? 1 : 0,
          .digests = o.digests.has_value(),
          .verifies = o.verify_every > 0};
}

StepSize validate(const FlagSet& flags, const TrainOptions& o, std::int64_t ranks, int pieces) {
  require<InputError>(!o.data.empty() || o.dry_run || o.print_schedule,
                      "--data is missing; give files or folders of text");
  (void)loss_scale_of(o);
  require<InputError>(o.units.recompute || o.units.offload_inputs == 0, "--offload ",
                      to_text(OffloadFlag{.inputs = o.units.offload_inputs}),
                      " is for blocks that keep their input alone; add --recompute");
  flags.require_ranges();
  require_in_range("ranks", o.ranks, counts_up_to(most_ranks, 0));
  require_in_range("ranks", o.launch.ranks, counts_up_to(most_ranks));
  if (o.memory) parse_bytes("memory", *o.memory);
  require<InputError>(!o.from_scratch || !o.resume || o.resume == "auto", "--from-scratch starts anew, and --resume ",
                      o.resume.value_or(""), " goes on; leave one of them out");
  require<InputError>(o.resume != "auto" || o.checkpoint_dir,
                      "--resume auto takes the newest checkpoint of --checkpoint-dir, which is missing; give it too");
  require<InputError>(o.keep == 0 || o.checkpoint_dir,
                      "--keep is for checkpoints, and none are written; give --checkpoint-dir too");
  require<InputError>(!o.resume_anyway || o.resume,
                      "--resume-anyway is for a run that goes on, and this one begins; give --resume too");
  require<InputError>(o.patience == 0 || (o.validation_every > 0 && o.validation_fraction > 0),
                      "--patience counts held-out losses, and none are measured on the way; give --validation-every ",
                      "and a --validation-fraction above 0");
  require<InputError>(o.validation_every == 0 || o.validation_fraction > 0 || o.sample_prompt,
                      "--validation-every is for held-out losses and samples, and with --validation-fraction 0 there "
                      "are neither; hold a part out, give --sample-prompt, or leave it out");
  require<InputError>(o.validation_fraction > 0 || !flags.is_given("validation-windows"),
                      "--validation-windows is for held-out losses, and with --validation-fraction 0 there are none; "
                      "hold a part out, or leave it out");
  require<InputError>(o.sample_prompt || !flags.is_given("sample-tokens"),
                      "--sample-tokens is the length of samples, and none are written; give --sample-prompt too");
  require<InputError>(!o.sample_prompt || o.sample_tokens < o.seq_len, "--sample-tokens ", o.sample_tokens,
                      " leave no room for a prompt in --seq-len ", o.seq_len, "; take fewer tokens");
  for (const char* const other : {"dry-run", "print-schedule"})
    require<InputError>(!o.cluster || !flags.is_given(other), "--cluster says what to expect of a run, and --", other,
                        " starts none; call tessera plan --cluster ", o.cluster.value_or(""),
                        ", or leave one of them out");
  require<InputError>(o.ranks == 0 || o.dry_run || o.print_schedule,
                      "--ranks is for --dry-run only; a run has the ranks that --comm or its launcher starts");
  const std::string differ = o.cuda_graphs == CudaGraphs::on ? steps_differ(o) : "";
  require<InputError>(differ.empty(), "--cuda-graphs replays one step, and ", differ, "; leave one of them out");
  require<InputError>(o.verify_every == 0 || pieces > 0, "--verify-every compares pieces of a step, and this strategy ",
                      "cuts it into none; take fsdp2:pieces=V, zero2:pieces=V or zero3:pieces=V (--sharding)");
  check_data(flags, o);
  require<InputError>(o.lr_decay_steps == 0 || o.lr_schedule == LrShape::wsd,
                      "--lr-decay-steps needs --lr-schedule wsd; found ", to_text(o.lr_schedule),
                      ". Take that schedule, or leave it out");
  require<InputError>(o.lr_decay_steps == 0 || o.lr_decay_steps <= o.steps - o.warmup, "--warmup ", o.warmup,
                      " and --lr-decay-steps ", o.lr_decay_steps, " are more than --steps ", o.steps,
                      "; make one of them smaller");
  require<InputError>(o.until <= o.steps, "--until ", o.until, " is beyond the last step, --steps ", o.steps,
                      "; take an earlier step, or more --steps");
  require<InputError>(o.checkpoint_every == 0 || o.checkpoint_dir || o.dry_run || o.print_schedule,
                      "--checkpoint-every is for checkpoints, and none are written; give --checkpoint-dir too");
  if (o.sequence.ranks > 1) {
    check_sequence_length(o.seq_len, o.sequence.ranks);
    require<InputError>(o.verify_every == 0, "--verify-every has each rank compute a whole piece of another one, and ",
                        "with --sequence ", o.sequence.text(), " no rank has a whole one; leave one of them out");
    require<InputError>(!o.sample_prompt, "--sample-prompt has each rank continue a whole text, which --sequence ",
                        o.sequence.text(), " does not; leave one of them out");
  }
  const StepSize size = step_size(o, ranks, pieces);
  require<InputError>(size.sequences <= most_tokens / o.seq_len, "--batch-size ", o.batch_size, " and --seq-len ",
                      o.seq_len, ": a micro-batch of ", size.sequences, " sequences has more than ", most_tokens,
                      " tokens; take more ", pieces > 0 ? "pieces" : "--grad-accum or ranks");
  return size;
}

std::string steps_differ(const TrainOptions& options) {
  return options.document_separator                       ? "--document-separator makes steps differ"
         : options.data_format == data::TokenFormat::chat ? "conversations make steps differ"
         : options.verify_every > 0                       ? "--verify-every makes steps differ"
         : options.trace                                  ? "--trace records host tasks"
                                                          : "";
}

std::int64_t last_step(const TrainOptions& options) {
  return options.until > 0 ? std::min(options.until, options.steps) : options.steps;
}

void validate(const FlagSet& flags, const EvalOptions& o) {
  check_data(flags, o);
  flags.require_ranges();
}

void validate(const FlagSet& flags, const GenerateOptions& o) {
  require<InputError>(o.prompt.empty() || o.prompt_ids.empty(),
                      "--prompt and --prompt-ids are given both; leave one of them out");
  require<InputError>(!o.prompt.empty() || !o.prompt_ids.empty(),
                      "--prompt is empty; give at least one byte to continue from, or --prompt-ids");
  for (const std::string& text : o.prompt_ids) parse_ids("prompt-ids", text);
  validate_sampling(flags, o);
}

void validate_sampling(const FlagSet& flags, const GenerateOptions& o) {
  for (const std::string& text : o.stop_ids) parse_ids("stop-ids", text);
  flags.require_ranges();
}

void from_text(std::string_view flag, std::string_view text, OnSignal& value) {
  value = signal_names.value(flag, text);
}
void from_text(std::string_view flag, std::string_view text, CudaGraphs& value) {
  value = text == "true" ? CudaGraphs::on : text == "false" ? CudaGraphs::off : graph_names.value(flag, text);
}
void from_text(std::string_view flag, std::string_view text, LrShape& value) { value = shape_names.value(flag, text); }
void from_text(std::string_view flag, std::string_view text, Reductions& value) {
  value = reductions_names.value(flag, text);
}
std::string to_text(CudaGraphs value) { return graph_names.name(value); }
std::string to_text(OnSignal value) { return signal_names.name(value); }
std::string to_text(LrShape value) { return shape_names.name(value); }
std::string to_text(Reductions value) { return reductions_names.name(value); }

std::optional<DynamicLossScale> loss_scale_of(const TrainOptions& options) {
  const std::string& text = options.loss_scale;
  if (text == "off") return std::nullopt;
  if (text == "dynamic") return DynamicLossScale();
  constexpr std::string_view prefix = "dynamic:";
  if (text.starts_with(prefix))
    if (const auto scale = parsed<double>(std::string_view(text).substr(prefix.size())))
      return DynamicLossScale({.scale = *scale, .sound_steps = 0});
  throw InputError(message("--loss-scale ", shortened(text), " is not known; write off, dynamic or dynamic:INITIAL"));
}

std::vector<std::int32_t> parse_ids(std::string_view flag, std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const std::string_view part : split_at(text, ',')) {
    ids.push_back(parsed<std::int32_t>(part).value_or(-1));
    require<InputError>(ids.back() >= 0, "--", flag, " '", shortened(text),
                        "' is no list of token ids; write whole numbers with commas between, such as 1,2,3");
  }
  return ids;
}

LrSchedule schedule_of(const TrainOptions& options) {
  return {.shape = options.lr_schedule,
          .peak = options.lr,
          .warmup = options.warmup,
          .steps = options.steps,
          .decay = options.lr_decay_steps};
}

double lr_at(const LrSchedule& schedule, std::int64_t step) {
  if (step < schedule.warmup)
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  if (schedule.shape == LrShape::constant) return schedule.peak;
  std::int64_t length = schedule.steps - 1 - schedule.warmup;
  if (schedule.shape == LrShape::wsd)
    length = std::min(length, schedule.decay > 0 ? schedule.decay : std::max<std::int64_t>(schedule.steps / 10, 1));
  const std::int64_t done = step - (schedule.steps - 1 - length);
  if (done >= length) return length <= 0 && done <= 0 ? schedule.peak : schedule.peak * schedule.last_fraction;
  if (done <= 0) return schedule.peak;
  const double at = static_cast<double>(done), end = static_cast<double>(length);
  const double left =
      schedule.shape == LrShape::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * at / end)) : 1 - at / end;
  return schedule.peak * (schedule.last_fraction + (1 - schedule.last_fraction) * left);
}

}  // namespace fsdp::train
