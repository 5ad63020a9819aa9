// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/flags.hpp>

namespace fsdp::train {
void bind(FlagSet& flags, LaunchOptions& launch) {
  flags.add("threads", launch.threads, "threads per rank; 0: cores / ranks");
  flags.add("deadline", launch.deadline_seconds, "seconds that a collective may take");
  flags.add("shared-windows", launch.windows,
            "mpi: ranks of one machine read each other's memory (--shared-windows=false: they send it)");
}

void bind(FlagSet& flags, TrainOptions& o) {
  flags.add("data", o.data, "text files or folders; binary files are skipped");
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
  flags.add("keep", o.keep, "newest checkpoints that stay, besides the one resumed from; 0: all");
  flags.add("resume", o.resume,
            "a checkpoint, a directory of them (the newest complete one), or auto: the newest in --checkpoint-dir if "
            "there is any");
  flags.add("disk-deadline", o.disk_deadline_seconds,
            "seconds that ranks wait for others which save or read a checkpoint");
  flags.add("metrics", o.metrics, "file that JSON lines are appended to");
  flags.add("trace", o.trace, "file for a Chrome trace");
  flags.add("cuda-graphs", o.cuda_graphs, "nccl: a step is launched as one CUDA graph, captured in the second step");
  flags.add("log-every", o.log_every, "steps between lines on the console");
  flags.add("dry-run", o.dry_run, "print the peak memory and train nothing");
  flags.add("memory", o.memory, "bytes of each rank (8GiB) for budget:auto; left out: its part of the machine's");
  flags.add("print-schedule", o.print_schedule, "print the schedule of a step and train nothing");
  bind(flags, o.launch);
}

void bind(FlagSet& flags, EvalOptions& o) {
  flags.add("model", o.model, "folder with config.json and model.safetensors");
  flags.add("data", o.data, "text files or folders");
  flags.add("seq-len", o.seq_len, "tokens per sequence");
  flags.add("batch-size", o.batch_size, "sequences at a time");
  flags.add("windows", o.windows, "windows used, evenly spread; 0: all");
  flags.add(
      "document-separator", o.document_separator,
      "byte (0 to 255; 10 is a newline) after which a new document begins: no attention across, positions restart");
  bind(flags, o.launch);
}

void bind(FlagSet& flags, GenerateOptions& o) {
  flags.add("model", o.model, "folder with config.json and model.safetensors");
  flags.add("prompt", o.prompt, "text to go on from");
  flags.add("tokens", o.tokens, "bytes to write");
  flags.add("temperature", o.temperature, "0: always the likeliest byte");
  flags.add("seed", o.seed, "of the draws");
  bind(flags, o.launch);
}

}  // namespace fsdp::train
