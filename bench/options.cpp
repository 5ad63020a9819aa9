// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/options.hpp>

#include "../src/program/cli/commands.hpp"

namespace fsdp::bench {

int BenchOptions::threads() const { return comm::planned_threads(launch.threads, 1); }

void bind(train::FlagSet& flags, BenchOptions& o) {
  using train::counts_up_to;
  constexpr std::int64_t most = 1 << 20, most_tokens = 1 << 30, most_elements = std::int64_t{1} << 40;
  flags
      .add("what", o.what,
           "mlp | attention | head | step | residency | generate | load | comm | matmul | optim | codec | tokenize")
      .position = true;
  flags.add(
      "model", o.model,
      "step and generate: folder whose config.json has the model's sizes, instead of flags; load: of the weights; "
      "tokenize: of the tokenizer.json");
  flags.add("text", o.text, "tokenize: a file of text, or a folder of such");
  flags.add("hidden", o.hidden, "hidden size", counts_up_to(most));
  flags.add("intermediate", o.intermediate, "width of the MLP; 0: 3072 for mlp, else 2816", counts_up_to(most, 0));
  flags.add("layers", o.layers, "layers of step's, residency's and generate's model", counts_up_to(most));
  flags.add("heads", o.heads, "heads of attention and of that model", counts_up_to(most));
  flags.add("kv-heads", o.kv_heads, "key-value heads of attention and of that model", counts_up_to(most));
  flags.add("head-dim", o.head_dim, "head size of attention; 0: 64 and 128", counts_up_to(most, 0));
  flags.add("vocab", o.vocab, "vocabulary of head and of that model; 0: 32000 for head, else 8192",
            counts_up_to(1 << 24, 0));
  flags.add("seq-len", o.seq_len,
            "tokens per sequence; 0: 2048 and 4096 for mlp, 4096 for attention and head, 2048 for step and residency, "
            "128 for generate",
            counts_up_to(most_tokens, 0));
  flags.add("parameters", o.parameters, "weights of optim, elements of codec", counts_up_to(most_elements));
  flags.add("bytes", o.bytes, "of each collective of comm, at least 4; 0: 1 MiB, 16 MiB and 64 MB",
            counts_up_to(most_elements, 0));
  flags.add("lora-rank", o.lora_rank, "step: also one that trains adapters of this rank, against the full one; 0: not",
            counts_up_to(4096, 0));
  flags.add("sequence", o.sequence,
            message("step: ", train::sequence_help, "; above 1, also against one rank with the threads of all"));
  flags.add("repeats", o.repeats, "the median is printed; 1 of mlp --table where it is not given", counts_up_to(most));
  flags.add("table", o.table, "mlp: time and bytes of the published tiled MLP's setting, on two ranks");
  flags.add("up-to", o.up_to, "longest sequence that mlp --table times; of longer ones it prints the bytes",
            counts_up_to(most_tokens, 0));
  flags.add("dry-run", o.dry_run, "mlp --table: bytes alone, in seconds");
  bind(flags, o.launch);
  bind(flags, o.optimizer);
  cli::bind(flags, o.stack, o.offload_inputs,
            "step: also steps with recomputed blocks, their inputs in host memory and kept");
}

void check(const BenchOptions& options, const train::FlagSet& flags) {
  const std::string& what = options.what;
  train::validate(options.launch);
  (void)resolve(options.optimizer);
  const auto belongs = [&](const char* flag, const std::vector<std::string>& owners) {
    std::string list;
    for (const std::string& owner : owners) list += (list.empty() ? "" : ", ") + owner;
    require<InputError>(!flags.is_given(flag) || std::ranges::find(owners, what) != owners.end(), "bench: --", flag,
                        " belongs to ", list, ", not to ", what);
  };
  belongs("model", {"step", "generate", "load", "tokenize"});
  belongs("text", {"tokenize"});
  belongs("parameters", {"optim", "codec"});
  belongs("table", {"mlp"});
  for (const char* flag : {"lora-rank", "sequence", "offload", "optimizer"}) belongs(flag, {"step"});
  require<InputError>(what == "step" || options.optimizer == train::OptimizerChoice{},
                      "bench: the constants of --optimizer belong to step, not to ", what);
  for (const char* flag : {"up-to", "dry-run"})
    require<InputError>(options.table || !flags.is_given(flag), "bench: --", flag, " belongs to mlp --table");
  require<InputError>(!options.table || options.stack.comm.kind == cli::CommChoice::Kind::threads, "bench: --comm ",
                      cli::to_text(options.stack.comm), ": the ranks of mlp --table are threads:N");
  require<InputError>(what != "attention" || options.heads % options.kv_heads == 0, "bench: --heads ", options.heads,
                      " are not divisible by --kv-heads ", options.kv_heads);
  require<InputError>(what != "residency" || cli::to_text(options.stack.sharding) == "fsdp2",
                      "bench residency: it compares fsdp2, fsdp2:no-reshard and budgets, not ",
                      cli::to_text(options.stack.sharding), "; leave --sharding out");
  require<InputError>(options.stack.precision != cli::PrecisionChoice::bf16_wire, "bench: --precision ",
                      cli::to_text(options.stack.precision), " says what ranks send each other, and ",
                      "no bench is compiled with it; take bf16");
  require<InputError>(options.bytes == 0 || options.bytes >= 4, "bench: --bytes ", options.bytes,
                      " is too small; give at least 4");  // bytes of one float
}

}  // namespace fsdp::bench
