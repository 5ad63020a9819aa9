// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/flags.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {
namespace {

constexpr auto some_steps = counts_up_to(most_steps), any_steps = counts_up_to(most_steps, 0);
constexpr auto some_tokens = counts_up_to(most_tokens), any_tokens = counts_up_to(most_tokens, 0);
constexpr auto some_sequences = counts_up_to(most_sequences), any_elements = counts_up_to(most_elements, 0);
constexpr Range<double> fractions{.least = 0, .most = 1};

/// Adds the flags for data: format, tokenizer and document boundaries.
template <class WithData>
void add_data(FlagSet& flags, WithData& o, const char* cache) {
  flags.add("data", o.data,
            "text, JSON records (.jsonl, .json) or token files, or folders of them, without their hidden names; files "
            "that are not text are left out and counted. PATH:WEIGHT for each mixes the sources in these proportions");
  flags.add(Effect::results, "data-format", o.data_format,
            "auto: token files of llm.c and Megatron-LM, else text | bytes: text, each byte a token | u16 | u32: "
            "tokens without a header | chat: JSON records of conversations; only the answers are trained on");
  flags.add("chat-template", o.text.chat_template,
            "template of conversations: auto (the one next to the tokenizer) | chatml | llama3 | qwen3 | plain | a "
            "Jinja file");
  flags.add(Effect::results, "learn", o.text.learn, "all | last: which answers of a conversation are trained on");
  flags.add(Effect::results, "on-long", o.text.on_long,
            "error | drop | cut: conversations longer than a sequence; dropped ones are counted");
  flags.add("tokenizer", o.text.tokenizer,
            "tokenizer.json, or its folder; left out: the one in --model's folder; without one, each byte is a token");
  flags.add("text-field", o.text.field, "key of the text in each record of JSON");
  flags
      .add("end-token", o.text.end_token,
           "token to append to each document or completion, by name, and the chat template's eos_token; left out: the "
           "eos_token of tokenizer_config.json or special_tokens_map.json; none: no token")
      .kind = FlagKind::verbatim;
  flags.add("token-cache", o.text.cache, message("folder to keep the token files in; left out: ", cache));
  flags.add(Effect::results, "document-separator", o.document_separator,
            "token that ends a document (for text a byte: 10 is a newline), or index: borders of Megatron-LM's index; "
            "attention does not cross them, positions restart");
}

void add_disk_deadline(FlagSet& flags, double& seconds) {
  flags.add("disk-deadline", seconds, "seconds to wait for ranks that read or write files", deadlines);
}

template <class WithModel>
void add_folder(FlagSet& flags, WithModel& o) {
  flags
      .add("model", o.model, "folder with config.json and weights, or a directory of checkpoints, whose newest is used")
      .missing = "--model is missing; give a folder with config.json and weights";
  flags.add("adapter", o.adapter, "folder of adapters, as PEFT writes it, for that model");
}

/// Adds the flag of a PrecisionBy's value.
void add_precision_of(FlagSet& flags, FloatWeights& value) {
  const auto load = [&value] {
    Texts texts;
    for (const TensorPattern& pattern : value.patterns) texts.push_back(pattern.text() + "=fp32");
    return texts;
  };
  const auto store = [&value](const Texts& texts) {
    value = {.patterns = {}, .is_float = std::vector<bool>(texts.size(), true)};
    for (const std::string& text : texts) {
      const std::string what = message("--precision-of ", shortened(text));
      require<InputError>(text.ends_with("=fp32"), what,
                          " does not end with =fp32, the one precision that some weights ",
                          "may have next to bf16; write PATTERN=fp32, such as '*norm*=fp32'");
      value.patterns.push_back(TensorPattern::from(text.substr(0, text.size() - 5), what + ": "));
    }
  };
  flags
      .add(Effect::results, "precision-of", load, store,
           "weights to compute with in float next to bf16 ones, such as '*norm*=fp32': a pattern of names, also with "
           ",role=matrix|table|vector ,least=N and ,most=N elements, and fp32; of stacks that have both types")
      .between = '\n';
}

/// Adds the flags for the model of a command that continues texts.
void add_model(FlagSet& flags, GenerateOptions& o) {
  flags.fix("sequence", "whole, since ranks that share a sequence cannot continue it");
  add_folder(flags, o);
  add_precision_of(flags, o.precision);
  flags.add("tokenizer", o.tokenizer, "tokenizer.json, or its folder; left out: the one in --model");
}

void add_sampling(FlagSet& flags, GenerateOptions& o) {
  flags.add("temperature", o.sampling.temperature, "0: always the likeliest token",
            Range<double>{.least = 0, .most = 1e6});
  flags.add("top-k", o.sampling.top_k, "sample from the k likeliest tokens; 0: from all", any_tokens);
  flags.add("top-p", o.sampling.top_p,
            "sample from the fewest likeliest tokens whose probabilities sum to at least this; 1: from all", fractions);
  flags.add("min-p", o.sampling.min_p,
            "sample from tokens with at least this fraction of the likeliest token's probability; 0: from all",
            fractions);
  flags.add("repetition-penalty", o.sampling.repetition_penalty,
            "above 1 makes tokens that already occurred less likely, below 1 more likely",
            Range<double>{.least = 1e-3, .most = 1e3});
  flags.add("seed", o.seed, "seed of sampling");
  flags.add("stop-ids", o.stop_ids, "token ids that end a sequence, such as 2 or 2,3");
}

}  // namespace

void bind(FlagSet& flags, LaunchOptions& launch) {
  flags.add("threads", launch.threads, "threads per rank; 0: OMP_NUM_THREADS if it is set, else cores / ranks",
            thread_counts);
  bind_waits(flags, launch, false);
}

void bind_waits(FlagSet& flags, LaunchOptions& launch, bool disk) {
  flags.add("deadline", launch.deadline_seconds, "seconds to wait for other ranks in a collective", deadlines);
  flags.add("start-deadline", launch.start_deadline_seconds,
            "seconds to wait until all ranks are connected (mpi, nccl)", deadlines);
  flags.add("device-deadline", launch.device_deadline_seconds, "seconds to wait for the rank's own device", deadlines);
  if (disk) add_disk_deadline(flags, launch.disk_deadline_seconds);
  flags.add("shared-windows", launch.windows,
            "mpi: read the memory of ranks on the same machine directly (--shared-windows=false: send messages)");
}

void bind(FlagSet& flags, TrainOptions& o) {
  const auto results = [&flags](const std::string& name, auto&&... parts) -> Flag& {
    return flags.add(Effect::results, name, parts...);
  };
  add_data(flags, o, "tokens in --checkpoint-dir, or else a temporary one");
  results("steps", o.steps, "optimizer steps of the whole run", some_steps);
  flags.add("until", o.until, "step to end after, with the schedule of all --steps; 0: the last", any_steps);
  results("seq-len", o.seq_len, "tokens per sequence", some_tokens);
  results("batch-size", o.batch_size, "sequences per step, over all ranks and micro-batches", some_sequences);
  results("grad-accum", o.grad_accum, "micro-batches per step", some_sequences);
  results("sequence", o.sequence, sequence_help);
  results("lr", o.lr, "learning rate after warm-up", Range<double>{.least = 0, .most = 1000});
  results("lr-schedule", o.lr_schedule,
          "constant | linear, cosine (down to a tenth at the last step) | wsd (constant, then linear)");
  results("warmup", o.warmup, "steps of linear warm-up", any_steps);
  results("lr-decay-steps", o.lr_decay_steps, "wsd: steps of the final decay; 0: a tenth of --steps", any_steps);
  results("clip", o.clip, "largest global gradient norm; 0 is off", Range<double>{.least = 0, .most = 1e30});
  results("loss-scale", o.loss_scale,
          "off | dynamic | dynamic:INITIAL (a power of two); steps that overflow are skipped");
  results("recompute", o.units.recompute, "keep only each block's input and recompute the rest in backward");
  results("blocks-per-unit", o.units.blocks_per_unit, "blocks gathered and reduced together",
          counts_up_to(most_blocks));
  results("merge-units-below", o.units.merge_below, "join units with fewer weights to a neighbour; 0: never",
          any_elements);
  results("keep-last-block", o.units.keep_last_block,
          "keep the last block's gathered weights during the head (--keep-last-block=false: gather them again)");
  results("replicate", o.units.replicated,
          "parameters to hold whole on every rank (names with * and ?), none of which --sharding-of selects");
  results("freeze", o.units.frozen, "parameters not to train (names with * and ?)");
  results("group", o.units.groups,
          "parameters to train in another way, such as 'role=table weight-decay=0': a pattern of names, and lr=FACTOR, "
          "weight-decay=W, clip=NORM or frozen; role=matrix|table|vector and units=PATTERN choose as well")
      .between = '\n';
  add_precision_of(flags, o.units.precision);
  results("seed", o.seed, "seed of the initial weights and of the data's order");
  results("from-scratch", o.from_scratch, "start from random weights even if --model is a folder that has some");
  results("validation-fraction", o.validation_fraction, "fraction of the windows to hold out, at the end of the data",
          Range<double>{.least = 0, .most = 1, .below = true});
  flags.add("validation-every", o.validation_every, "steps between validations; 0: only at the end", any_steps);
  flags.add("patience", o.patience,
            "stop after so many held-out losses without improvement, and keep the best step's checkpoint; 0: never",
            any_steps);
  flags
      .add("sample-prompt", o.sample_prompt,
           "text to continue after each validation, and print; with --data-format chat a user's message")
      .kind = FlagKind::verbatim;
  flags.add("sample-tokens", o.sample_tokens, "most tokens of such a sample", some_tokens);
  flags.add("validation-windows", o.validation_windows, "held-out windows used, evenly spread; 0: all", any_elements);
  flags.add("checkpoint-dir", o.checkpoint_dir, "where checkpoints are written");
  flags.add("checkpoint-every", o.checkpoint_every, "steps between checkpoints; 0: only at the end", any_steps);
  flags.add("keep", o.keep, "newest checkpoints to keep, besides the best and the one resumed from; 0: all", any_steps);
  flags.add("resume", o.resume,
            "a checkpoint, a directory of them (the newest sound one), or auto: the newest in --checkpoint-dir if "
            "there is any");
  flags.add("resume-anyway", o.resume_anyway,
            "resume even if data or batches differ; the order of the data then starts anew");
  add_disk_deadline(flags, o.launch.disk_deadline_seconds);
  flags.add("on-signal", o.on_signal, "save | stop: whether a signal that ends the run saves a checkpoint before");
  flags.add("metrics", o.metrics, "file to append metrics to, as JSON lines");
  flags.add("digests", o.digests,
            "file to append 64 bits of all streams, gradients and weights of each step to, as JSON lines; see diff");
  flags.add("verify-every", o.verify_every,
            "steps between those of which each rank computes a piece of another one again, and compares; 0: never",
            any_steps);
  flags.add("tensorboard", o.tensorboard, "directory for TensorBoard's event files");
  flags.add("trace", o.trace, "file for a Chrome trace");
  flags.add("cluster", o.cluster,
            "figures of the machines that it runs on, a file (tessera calibrate) or a known name: says what a plan "
            "expects of a step, and what came");
  flags.add("cuda-graphs", o.cuda_graphs,
            "nccl: auto | on | off: capture the second step as a CUDA graph and replay it; auto: on one rank, if all "
            "steps are uniform");
  flags.add("reductions", o.launch.reductions,
            "nccl: deterministic | fast (NCCL may take NVLS, whose float sums may differ from run to run)");
  flags.add("log-every", o.log_every, "steps between lines on the console", some_steps);
  flags.add("dry-run", o.dry_run, "print the peak memory and train nothing");
  flags.add("memory", o.memory,
            "memory per rank for budget:auto, or budget=auto (8GiB); left out: its share of the machine's free memory. "
            "With --dry-run: does a step fit, and if not, with what");
  flags.add("print-schedule", o.print_schedule, "print the schedule of a step and train nothing");
  bind(flags, o.launch);
}

void bind(FlagSet& flags, EvalOptions& o) {
  add_folder(flags, o);
  add_data(flags, o, "a temporary one");
  flags.find("data")->missing = "--data is missing; give files or folders of text";
  flags.add("seq-len", o.seq_len, "tokens per sequence", some_tokens);
  flags.add("batch-size", o.batch_size, "sequences at a time", some_sequences);
  flags.add("sequence", o.sequence, sequence_help);
  add_precision_of(flags, o.precision);
  flags.add("windows", o.windows, "windows used, evenly spread; 0: all", any_elements);
  add_disk_deadline(flags, o.launch.disk_deadline_seconds);
  bind(flags, o.launch);
}

void bind(FlagSet& flags, GenerateOptions& o) {
  add_model(flags, o);
  flags.add("prompt", o.prompt, "text to continue; without a tokenizer each byte is a token").kind = FlagKind::verbatim;
  flags.add("prompt-ids", o.prompt_ids,
            "token ids to continue, such as 1,2,3, instead of a text; several are a batch. A line of ids is printed "
            "for each");
  flags.add("tokens", o.tokens, "tokens to write, after each prompt", any_tokens);
  add_sampling(flags, o);
  flags.add("no-cache", o.no_cache, "no KV cache: recompute the whole sequence for each token (slower, less memory)");
  add_disk_deadline(flags, o.launch.disk_deadline_seconds);
  bind(flags, o.launch);
}

void bind(FlagSet& flags, ChatOptions& o) {
  add_model(flags, o.generate);
  flags.add("chat-template", o.chat_template,
            "auto (the one next to the tokenizer) | chatml | llama3 | qwen3 | plain | a Jinja file");
  flags.add("system", o.system, "system message at the start of the conversation").kind = FlagKind::verbatim;
  flags.add("context", o.context, "most tokens of the conversation; memory is reserved for them", some_tokens);
  flags.add("tokens", o.generate.tokens, "tokens of an answer, at most", some_tokens);
  add_sampling(flags, o.generate);
  add_disk_deadline(flags, o.generate.launch.disk_deadline_seconds);
  bind(flags, o.generate.launch);
}

}  // namespace fsdp::train
