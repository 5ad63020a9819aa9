// SPDX-License-Identifier: Apache-2.0
#include "flag_set.hpp"

namespace fsdp::cli {
namespace {

void bind(FlagSet& flags, train::StackChoice& stack) {
  flags.add(
      "sharding", stack.sharding,
      "fsdp2 | fsdp2:no-reshard | fsdp2:K | zero1 | zero2 | zero3 | hybrid:K | hybrid:K:full | replicated; K ranks "
      "per group. Behind hybrid:K also the strategy inside a group (:zero3; else fsdp2). Behind fsdp2, zero3 and "
      "hybrid:K also :prefetch=N (units gathered ahead); behind fsdp2 and hybrid:K "
      ":deferred (reduce after the last micro-batch); behind zero3 :persist=N (tensors up to N elements stay gathered) "
      "and :live=N (most elements gathered at a time)");
  flags.add("layout", stack.sharding.layout,
            "default | per-parameter | flat | rows (no row is cut) | owned (no tensor is cut); default: per-parameter "
            "with fsdp2, flat with zero1, zero2 and zero3");
  flags.add("precision", stack.precision, "fp32 | bf16 (bf16 compute, fp32 main weights and reduction)");
  flags.add("tiling", stack.tiling,
            "off | tiles:N | tokens:N | budget:BYTES (as 512MiB, for what is kept and a tile) | budget:auto (train: "
            "what --memory leaves)");
  flags.add("comm", stack.comm, "self | threads:N | mpi | nccl");
  flags.add("threads", stack.threads, "threads per rank; 0: cores / ranks");
  flags.add("deadline", stack.deadline_seconds, "seconds that a collective may take");
  flags.add("shared-windows", stack.windows,
            "mpi: ranks of one machine read each other's memory (--shared-windows=false: they send it)");
}

void bind(FlagSet& flags, train::ModelChoice& model) {
  flags.add("model", model.name, "preset (tiny, small), or a folder with config.json and model.safetensors");
  flags.add("hidden", model.hidden, "hidden size, instead of the preset's");
  flags.add("layers", model.layers, "number of layers, instead of the preset's");
  flags.add("heads", model.heads, "number of heads, instead of the preset's");
  flags.add("kv-heads", model.kv_heads, "number of key-value heads, instead of the preset's");
  flags.add("head-dim", model.head_dim, "head dimension, instead of hidden / heads");
  flags.add("intermediate", model.intermediate, "width of the MLP, instead of the preset's");
  flags.add("vocab", model.vocab, "vocabulary, instead of the preset's");
  flags.add("tied", model.tied, "the head uses the embedding's weight (--tied=false: it does not)");
}

}  // namespace

void bind(FlagSet& flags, train::TrainOptions& o) {
  flags.add("data", o.data, "text files or folders; binary files are skipped");
  bind(flags, o.model);
  flags.add("steps", o.steps, "optimizer steps of the whole run");
  flags.add("seq-len", o.seq_len, "tokens per sequence");
  flags.add("batch-size", o.batch_size, "sequences per step, over all ranks and micro-batches");
  flags.add("grad-accum", o.grad_accum, "micro-batches per step");
  flags.add(
      "document-separator", o.document_separator,
      "byte (0 to 255; 10 is a newline) after which a new document begins: no attention across, positions restart");
  flags.add("lr", o.lr, "learning rate after warm-up");
  flags.add("lr-schedule", o.lr_schedule, "constant | cosine (down to a tenth at the last step)");
  flags.add("warmup", o.warmup, "steps of linear warm-up");
  flags.add("weight-decay", o.weight_decay, "on tensors of rank 2");
  flags.add("beta1", o.beta1, "AdamW's first moment");
  flags.add("beta2", o.beta2, "AdamW's second moment");
  flags.add("eps", o.eps, "AdamW's epsilon");
  flags.add("clip", o.clip, "largest global gradient norm; 0 is off");
  flags.add("loss-scale", o.loss_scale,
            "off | dynamic | dynamic:INITIAL (a power of two); steps that overflow are skipped");
  flags.add("recompute", o.units.recompute, "blocks keep their input alone and make the rest again in backward");
  flags.add("blocks-per-unit", o.units.blocks_per_unit, "blocks gathered and reduced together");
  flags.add("merge-units-below", o.units.merge_below, "a unit of fewer weights joins its neighbour; 0: none does");
  flags.add("keep-last-block", o.units.keep_last_block, "the last block's weights stay through the head");
  flags.add("replicate", o.units.replicated, "parameters that every rank holds whole (names with * and ?)");
  flags.add("freeze", o.units.frozen, "parameters that are not trained (names with * and ?)");
  flags.add("seed", o.seed, "of initial weights and data order");
  flags.add("validation-fraction", o.validation_fraction, "last part of the windows, held out");
  flags.add("validation-every", o.validation_every, "steps; 0: only at the end");
  flags.add("validation-windows", o.validation_windows, "held-out windows used, evenly spread; 0: all");
  flags.add("checkpoint-dir", o.checkpoint_dir, "where checkpoints are written");
  flags.add("checkpoint-every", o.checkpoint_every, "steps; 0: only at the end");
  flags.add("resume", o.resume, "a checkpoint, or a directory of them (the newest complete one)");
  flags.add("metrics", o.metrics, "file that JSON lines are appended to");
  flags.add("trace", o.trace, "file for a Chrome trace");
  flags.add("cuda-graphs", o.cuda_graphs, "nccl: a step is launched as one CUDA graph, captured in the second step");
  flags.add("log-every", o.log_every, "steps between lines on the console");
  flags.add("dry-run", o.dry_run, "print the peak memory and train nothing");
  flags.add("ranks", o.ranks, "of the dry run; 0: those of --comm");
  flags.add("memory", o.memory, "bytes of each rank (8GiB) for budget:auto; left out: its part of the machine's");
  flags.add("print-schedule", o.print_schedule, "print the schedule of a step and train nothing");
  bind(flags, o.stack);
}

void bind(FlagSet& flags, train::EvalOptions& o) {
  flags.add("model", o.model, "folder with config.json and model.safetensors");
  flags.add("data", o.data, "text files or folders");
  flags.add("seq-len", o.seq_len, "tokens per sequence");
  flags.add("batch-size", o.batch_size, "sequences at a time");
  flags.add("windows", o.windows, "windows used, evenly spread; 0: all");
  flags.add(
      "document-separator", o.document_separator,
      "byte (0 to 255; 10 is a newline) after which a new document begins: no attention across, positions restart");
  bind(flags, o.stack);
}

void bind(FlagSet& flags, train::GenerateOptions& o) {
  flags.add("model", o.model, "folder with config.json and model.safetensors");
  flags.add("prompt", o.prompt, "text to go on from");
  flags.add("tokens", o.tokens, "bytes to write");
  flags.add("temperature", o.temperature, "0: always the likeliest byte");
  flags.add("seed", o.seed, "of the draws");
  bind(flags, o.stack);
}

void bind(FlagSet& flags, bench::BenchOptions& o) {
  flags.add("hidden", o.hidden, "hidden size");
  flags.add("intermediate", o.intermediate, "width of the MLP; 0: 3072 for mlp, 2816 for step");
  flags.add("layers", o.layers, "layers of step's model");
  flags.add("heads", o.heads, "heads of attention and of step's model");
  flags.add("kv-heads", o.kv_heads, "key-value heads of attention and of step's model");
  flags.add("head-dim", o.head_dim, "head size of attention; 0: 64 and 128");
  flags.add("vocab", o.vocab, "vocabulary of head and of step's model; 0: 32000 for head, 8192 for step");
  flags.add("seq-len", o.seq_len,
            "tokens per sequence; 0: 2048 and 4096 for mlp, 4096 for attention and head, 2048 for step");
  flags.add("parameters", o.parameters, "weights of optim");
  flags.add("bytes", o.bytes, "of each collective of comm; 0: 1 MiB, 16 MiB and 64 MB");
  flags.add("repeats", o.repeats, "the median is printed; 1 of mlp --table where it is not given");
  flags.add("table", o.table, "mlp: time and bytes of the published tiled MLP's setting, on two ranks");
  flags.add("up-to", o.up_to, "longest sequence that mlp --table times; of longer ones it tells the bytes");
  flags.add("dry-run", o.dry_run, "mlp --table: bytes alone, in seconds");
  bind(flags, o.stack);
}

}  // namespace fsdp::cli
