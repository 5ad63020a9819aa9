// SPDX-License-Identifier: Apache-2.0
#include "alone.hpp"

#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::bench {

void check(const BenchOptions& options, const train::FlagSet& flags) {
  const auto at_least = [](const char* flag, std::int64_t value, std::int64_t least, std::int64_t most = 1 << 20) {
    require<InputError>(value >= least, "bench: --", flag, " ", value, " is too small; give at least ", least);
    require<InputError>(value <= most, "bench: --", flag, " ", value, " is too large; give at most ", most);
  };
  constexpr std::int64_t most_elements = std::int64_t{1} << 40;  // more than fits in any machine's memory
  train::validate(options.launch);
  at_least("layers", options.layers, 1);
  at_least("repeats", options.repeats, 1);
  at_least("seq-len", options.seq_len, 0, 1 << 30);
  at_least("hidden", options.hidden, 1);
  at_least("intermediate", options.intermediate, 0);
  at_least("heads", options.heads, 1);
  at_least("kv-heads", options.kv_heads, 1);
  at_least("head-dim", options.head_dim, 0);
  at_least("vocab", options.vocab, 0, 1 << 24);
  if (options.what == "attention")
    require<InputError>(options.heads % options.kv_heads == 0, "bench: --heads ", options.heads,
                        " are not divisible by --kv-heads ", options.kv_heads);
  at_least("up-to", options.up_to, 0, 1 << 30);
  require<InputError>(!options.table || options.what == "mlp", "bench: --table belongs to mlp, not to ", options.what);
  for (const char* flag : {"up-to", "dry-run"})
    require<InputError>(options.table || !flags.is_given(flag), "bench: --", flag, " belongs to mlp --table");
  require<InputError>(!options.table || options.stack.comm.kind == cli::CommChoice::Kind::threads, "bench: --comm ",
                      cli::to_text(options.stack.comm), ": the ranks of mlp --table are threads:N");
  require<InputError>(options.what == "step" || options.what == "generate" || options.what == "load" ||
                          options.what == "comm" || options.stack.precision != cli::PrecisionChoice::bf16_wire,
                      "bench: --precision ", cli::to_text(options.stack.precision),
                      " says what ranks send each other, and ", options.what, " measures what one computes; take bf16");
  require<InputError>(options.model.empty() || options.what == "step" || options.what == "generate" ||
                          options.what == "load" || options.what == "tokenize",
                      "bench: --model belongs to step, generate, load and tokenize, not to ", options.what);
  require<InputError>(options.what != "residency" || cli::to_text(options.stack.sharding) == "fsdp2",
                      "bench residency: it compares fsdp2, fsdp2:no-reshard and budgets, not ",
                      cli::to_text(options.stack.sharding), "; leave --sharding out");
  for (const auto& [flag, owner] : {std::pair("text", "tokenize"), {"lora-rank", "step"}, {"parameters", "optim"}})
    require<InputError>(options.what == owner || !flags.is_given(flag), "bench: --", flag, " belongs to ", owner,
                        ", not to ", options.what);
  require<InputError>(options.what == "step" || options.offload_inputs == 0,
                      "bench: --offload inputs belongs to step, not to ", options.what);
  require<InputError>(options.what == "step" || options.sequence == Ulysses{}, "bench: --sequence ",
                      options.sequence.text(), " belongs to step, not to ", options.what);
  require<InputError>(options.what == "step" || options.optimizer == train::OptimizerChoice{},
                      "bench: --optimizer and its constants belong to step, not to ", options.what);
  at_least("parameters", options.parameters, 1, most_elements);
  if (options.bytes != 0) at_least("bytes", options.bytes, 4, most_elements);  // one float
}

}  // namespace fsdp::bench
