// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/sequence_flag.hpp>

#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_parts.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/value_names.hpp"

namespace fsdp {

void from_text(std::string_view flag, std::string_view text, Ulysses& value) {
  value = {};
  if (text == WholeSequences::name) return;
  PolicyParts parts;
  parts.part(value);
  const std::string what = message("--", flag, " ");
  require<InputError>(text != "ulysses", what, "ulysses does not say how many ranks share each sequence; write ",
                      "ulysses:K, such as ulysses:2");
  if (!parts.read(text, what))
    refuse_unknown(flag, text, std::vector<std::string>{"whole", "ulysses:K", "ulysses:K:parts=P"});
  require<InputError>(value.ranks > 1 || value.parts <= 1, what, text,
                      ": parts are of ranks that share a sequence; give ulysses:K with K above 1, or leave parts out");
}

std::string to_text(const Ulysses& value) { return value.text(); }

}  // namespace fsdp

namespace fsdp::train {

void require_stack_shards(const Ulysses& sequence, bool shards) {
  require<InputError>(shards || sequence.ranks == 1, "--sequence ", sequence.text(),
                      ": this program's stack has whole sequences; compile it with fsdp::Ulysses as the fifth policy ",
                      "of fsdp::Stack, or leave --sequence out");
}

}  // namespace fsdp::train
