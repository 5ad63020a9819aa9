// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera eval`: the mean loss over windows of data.
#pragma once

#include <cstdint>

#include <tessera/comm/ranks.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/tokenized_data.hpp>

namespace fsdp::train {

/// Tokenizes the data and opens them. Collective; throws InputError on all ranks, also if ranks read different data.
OpenData open_eval_data(const comm::Ranks& ranks, const EvalOptions& options, std::int64_t vocabulary);

/// Prints {"loss": mean nats per token, "tokens": ...} over windows of `source`, from which the inference reads.
/// `pieces`: number of pieces of the strategy's steps. Collective. Throws InputError if the loss is not finite.
void evaluate(Inference& inference, const EvalOptions& options, const data::TextSource& source, int pieces);

}  // namespace fsdp::train
