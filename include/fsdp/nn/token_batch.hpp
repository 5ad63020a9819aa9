// SPDX-License-Identifier: Apache-2.0
/// @file
/// The micro-batch of a language model: tokens, and for each the token that follows it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/documents.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/valid_rows.hpp>

namespace fsdp {

/// Tokens of one micro-batch on one rank; sequences of equal length, one after the other. A negative target is ignored.
/// Packed documents cut sequences further (tessera/fsdp/device/documents.hpp).
struct TokenBatch {
  static constexpr std::string_view unit = "tokens";
  static constexpr std::string_view loss_unit = "nats per token";  ///< of the mean loss over targets

  Tensor<const std::int32_t> tokens;   // [sequences * S]
  Tensor<const std::int32_t> targets;  // [sequences * S]; may be empty if only logits are computed
  std::int64_t sequences = 0;
  device::CumulativeLengths documents = {};  ///< [documents + 1]; empty: each sequence is one
  nn::Noise noise = {};                      ///< for dropout in training; by default none
  std::int64_t first_row = 0;                ///< of a part: the number of its first row
  std::int64_t all_rows = 0;                 ///< of a part: rows of the batch that it is cut from; 0: this is no part

  /// Returns a batch of this shape whose memory cannot be read, for dry runs.
  static TokenBatch unread(std::int64_t sequences, std::int64_t sequence_length);

  /// Throws InputError unless tokens and targets are in the vocabulary and the documents cover them.
  void validate(std::int64_t sequence_length, std::int64_t vocabulary) const;

  /// Sets the random numbers' key, and the number of the batch's first sequence among all that the run draws (`first`),
  /// so that every sequence of a run has its own random numbers.
  void set_noise(std::uint64_t key, std::int64_t first) {
    noise = {.key = key, .first_row = first * (tokens.numel() / std::max<std::int64_t>(sequences, 1))};
  }

  /// Returns the rows of one of `parts` ranks that share the sequences (nn::rows_of_part), which views the same memory.
  /// `sequences` and `documents` remain those of all rows. Throws LogicError if the batch is a part itself.
  TokenBatch part(int part, int parts) const;

  /// Returns the batch without targets, for passes that make logits.
  TokenBatch without_targets() const {
    TokenBatch own = *this;
    own.targets = {};
    return own;
  }

  /// Of a part its own rows, each of which sees its document: the parts' counts add up to those of the batch.
  BatchCounts counts() const;
  /// Returns the rows with a target, then {sequences, tokens}. Throws LogicError if the batch has documents: they
  /// change from step to step.
  nn::RowRuns pattern() const;

  /// Tokens and targets where the device reads them.
  struct OnDevice {
    Tensor<const std::int32_t> input;  // [sequences * S]
    nn::Targets targets;               // [sequences * S]
  };
  /// Copies tokens and targets into the arena, unless the device reads host memory.
  template <class L>
  OnDevice upload(nn::Context<L>& context) const {
    OnDevice uploaded{.input = nn::on_device(context, tokens), .targets = targets};
    uploaded.targets.device = nn::on_device(context, targets);
    return uploaded;
  }
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(fsdp::TokenBatch)
