// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/flags.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/train/ranges.hpp>

namespace fsdp::train {
namespace {

constexpr Range<double> seconds{.least = 0, .most = 1e6, .above = true};
constexpr Range<double> fractions{.least = 0, .most = 1};
constexpr Range<double> learning_rates{.least = 0, .most = 1000};

/// What data hold, and where their documents end.
template <class WithData>
void add_data(FlagSet& flags, WithData& o, const char* cache) {
  flags.add("data", o.data,
            "text, JSONL (.jsonl) or token files, or folders of them; binary files are skipped. PATH:WEIGHT for each: "
            "sources of "
            "which so large a share is read");
  flags.add("data-format", o.data_format,
            "auto: token files of llm.c and Megatron-LM, else text | bytes: text, each byte a token | u16 | u32: "
            "tokens without a header | chat: JSONL of conversations, trained on their answers alone");
  flags.add("chat-template", o.text.chat_template,
            "of conversations: auto (the one beside the tokenizer) | chatml | llama3 | plain | a file of Jinja");
  flags.add("on-long", o.text.on_long,
            "conversations that are longer than a sequence: error | drop | cut; those that are left out are counted");
  flags.add("tokenizer", o.text.tokenizer,
            "tokenizer.json, or its folder, that makes tokens of text; left out: the one in --model's folder, or else "
            "each byte is a token");
  flags.add("text-field", o.text.field, "of each line of JSONL");
  flags.add("end-token", o.text.end_token,
            "token behind each document, by name; left out: eos_token of tokenizer_config.json; none: no token");
  flags.add("token-cache", o.text.cache, message("folder where the tokens of text stay; left out: ", cache));
  flags.add("document-separator", o.document_separator,
            "token (of text a byte: 10 is a newline) after which a new document begins: no attention across, positions "
            "restart",
            Range<std::int64_t>{.least = 0, .most = std::numeric_limits<std::int32_t>::max()});
}

void add_disk_deadline(FlagSet& flags, LaunchOptions& launch) {
  flags.add("disk-deadline", launch.disk_deadline_seconds,
            "seconds that ranks wait for others which read data or a model, or save", seconds);
}

template <class WithModel>
void add_folder(FlagSet& flags, WithModel& o) {
  flags.add("model", o.model, "folder with config.json and weights");
  flags.add("adapter", o.adapter, "folder of adapters, as PEFT writes it, for that model");
}

void add_model(FlagSet& flags, GenerateOptions& o) {
  add_folder(flags, o);
  flags.add("tokenizer", o.tokenizer, "tokenizer.json, or its folder; left out: the one in --model");
}

/// How tokens are drawn, and where a sequence ends.
void add_sampling(FlagSet& flags, GenerateOptions& o) {
  flags.add("temperature", o.sampling.temperature, "0: always the likeliest token",
            Range<double>{.least = 0, .most = 1e6});
  flags.add("top-k", o.sampling.top_k, "draw of this many likeliest tokens; 0: of all", counts_up_to(most_tokens, 0));
  flags.add("top-p", o.sampling.top_p, "draw of the fewest likeliest tokens of this probability together; 1: of all",
            fractions);
  flags.add("min-p", o.sampling.min_p, "draw of tokens of this part of the likeliest's probability; 0: of all",
            fractions);
  flags.add("repetition-penalty", o.sampling.repetition_penalty,
            "above 1: tokens that were seen become less likely; below 1: more",
            Range<double>{.least = 1e-3, .most = 1e3});
  flags.add("seed", o.seed, "of the draws");
  flags.add("stop-ids", o.stop_ids, "token ids, such as 2 or 2,3, behind which a sequence ends");
}

}  // namespace

void bind(FlagSet& flags, LaunchOptions& launch) {
  flags.add("threads", launch.threads, "threads per rank; 0: cores / ranks", counts_up_to(most_threads, 0));
  flags.add("deadline", launch.deadline_seconds, "seconds that a rank waits for others in a collective", seconds);
  flags.add("device-deadline", launch.device_deadline_seconds, "seconds that a rank waits for its own device", seconds);
  flags.add("shared-windows", launch.windows,
            "mpi: ranks of one machine read each other's memory (--shared-windows=false: they send it)");
}

void bind(FlagSet& flags, TrainOptions& o) {
  add_data(flags, o, "tokens in --checkpoint-dir, or else a temporary one");
  flags.add("steps", o.steps, "optimizer steps of the whole run", counts_up_to(most_steps));
  flags.add("seq-len", o.seq_len, "tokens per sequence", counts_up_to(most_tokens));
  flags.add("batch-size", o.batch_size, "sequences per step, over all ranks and micro-batches",
            counts_up_to(most_sequences));
  flags.add("grad-accum", o.grad_accum, "micro-batches per step", counts_up_to(most_sequences));
  flags.add("lr", o.lr, "learning rate after warm-up", learning_rates);
  flags.add("lr-schedule", o.lr_schedule,
            "constant | linear, cosine (down to a tenth at the last step) | wsd (constant, then linear)");
  flags.add("warmup", o.warmup, "steps of linear warm-up", counts_up_to(most_steps, 0));
  flags.add("lr-decay-steps", o.lr_decay_steps, "wsd: last steps, in which the rate falls; 0: a tenth of --steps",
            counts_up_to(most_steps, 0));
  flags.add("clip", o.clip, "largest global gradient norm; 0 is off", Range<double>{.least = 0, .most = 1e30});
  flags.add("loss-scale", o.loss_scale,
            "off | dynamic | dynamic:INITIAL (a power of two); steps that overflow are skipped");
  flags.add("recompute", o.units.recompute, "blocks keep their input alone and make the rest again in backward");
  flags.add("blocks-per-unit", o.units.blocks_per_unit, "blocks gathered and reduced together",
            counts_up_to(most_blocks));
  flags.add("merge-units-below", o.units.merge_below, "a unit of fewer weights joins its neighbour; 0: none does",
            counts_up_to(most_elements, 0));
  flags.add("keep-last-block", o.units.keep_last_block,
            "the last block's weights stay through the head (--keep-last-block=false: they are gathered again)");
  flags.add("replicate", o.units.replicated, "parameters that every rank holds whole (names with * and ?)");
  flags.add("freeze", o.units.frozen, "parameters that are not trained (names with * and ?)");
  flags.add("seed", o.seed, "of initial weights and data order");
  flags.add("from-scratch", o.from_scratch, "random weights from the seed, though --model is a folder that has some");
  flags.add("validation-fraction", o.validation_fraction, "last part of the windows, held out",
            Range<double>{.least = 0, .most = 1, .below = true});
  flags.add("validation-every", o.validation_every, "steps; 0: only at the end", counts_up_to(most_steps, 0));
  flags.add("patience", o.patience,
            "end where so many held-out losses in a row were no lower than the best, whose step is saved and stays; 0: "
            "never",
            counts_up_to(most_steps, 0));
  flags.add("sample-prompt", o.sample_prompt,
            "text to go on from, each time the held-out loss is measured: what the model writes is printed; with "
            "--data-format chat a user's message");
  flags.add("sample-tokens", o.sample_tokens, "tokens of that text, at most", counts_up_to(most_tokens));
  flags.add("validation-windows", o.validation_windows, "held-out windows used, evenly spread; 0: all",
            counts_up_to(most_elements, 0));
  flags.add("checkpoint-dir", o.checkpoint_dir, "where checkpoints are written");
  flags.add("checkpoint-every", o.checkpoint_every, "steps; 0: only at the end", counts_up_to(most_steps, 0));
  flags.add("keep", o.keep, "newest checkpoints that stay, besides the one resumed from; 0: all",
            counts_up_to(most_steps, 0));
  flags.add("resume", o.resume,
            "a checkpoint, a directory of them (the newest sound one), or auto: the newest in --checkpoint-dir if "
            "there is any");
  flags.add("resume-anyway", o.resume_anyway, "resume with other data or batches, whose order then begins anew");
  add_disk_deadline(flags, o.launch);
  flags.add("on-signal", o.on_signal, "save | stop: whether a step that SIGTERM or SIGINT ends is saved");
  flags.add("metrics", o.metrics, "file that JSON lines are appended to");
  flags.add("tensorboard", o.tensorboard, "directory for TensorBoard's event files");
  flags.add("trace", o.trace, "file for a Chrome trace");
  flags.add("cuda-graphs", o.cuda_graphs, "nccl: a step is launched as one CUDA graph, captured in the second step");
  flags.add("log-every", o.log_every, "steps between lines on the console", counts_up_to(most_steps));
  flags.add("dry-run", o.dry_run, "print the peak memory and train nothing");
  flags.add("memory", o.memory, "bytes of each rank (8GiB) for budget:auto; left out: its part of the machine's");
  flags.add("print-schedule", o.print_schedule, "print the schedule of a step and train nothing");
  bind(flags, o.launch);
}

void bind(FlagSet& flags, EvalOptions& o) {
  add_folder(flags, o);
  add_data(flags, o, "a temporary one");
  flags.add("seq-len", o.seq_len, "tokens per sequence", counts_up_to(most_tokens));
  flags.add("batch-size", o.batch_size, "sequences at a time", counts_up_to(most_sequences));
  flags.add("windows", o.windows, "windows used, evenly spread; 0: all", counts_up_to(most_elements, 0));
  add_disk_deadline(flags, o.launch);
  bind(flags, o.launch);
}

void bind(FlagSet& flags, GenerateOptions& o) {
  add_model(flags, o);
  flags.add("prompt", o.prompt, "text to go on from; without a tokenizer each byte is a token");
  flags.add("prompt-ids", o.prompt_ids,
            "token ids to go on from, such as 1,2,3, instead of a text; several are a batch. A line of ids is printed "
            "for each");
  flags.add("tokens", o.tokens, "tokens to write, after each prompt", counts_up_to(most_tokens, 0));
  add_sampling(flags, o);
  flags.add("no-cache", o.no_cache,
            "compute the whole sequence for each token, instead of keeping keys and values: slower, less memory");
  add_disk_deadline(flags, o.launch);
  bind(flags, o.launch);
}

void bind(FlagSet& flags, ChatOptions& o) {
  add_model(flags, o.generate);
  flags.add("chat-template", o.chat_template,
            "auto (the one beside the tokenizer) | chatml | llama3 | plain | a file of Jinja");
  flags.add("system", o.system, "a message of the role system that stands first");
  flags.add("context", o.context, "tokens of the whole conversation, for which memory is kept",
            counts_up_to(most_tokens));
  flags.add("tokens", o.generate.tokens, "tokens of an answer, at most", counts_up_to(most_tokens));
  add_sampling(flags, o.generate);
  add_disk_deadline(flags, o.generate.launch);
  bind(flags, o.generate.launch);
}

template <class Options>
static std::string toml_of(Options options) {
  FlagSet flags;
  bind(flags, options);
  return write_toml(flags);
}
std::string to_toml(const TrainOptions& options) { return toml_of(options); }
std::string to_toml(const EvalOptions& options) { return toml_of(options); }
std::string to_toml(const GenerateOptions& options) { return toml_of(options); }
std::string to_toml(const ChatOptions& options) { return toml_of(options); }

}  // namespace fsdp::train
