// SPDX-License-Identifier: Apache-2.0
/// @file
/// The micro-batch of a language model: tokens, and for each token its target, the token that follows it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/documents.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp {

/// Tokens of one micro-batch on one rank; sequences of equal length, one after the other. A negative target is ignored.
/// Packed documents cut sequences further (tessera/fsdp/device/documents.hpp).
struct TokenBatch {
  static constexpr std::string_view unit = "tokens";
  static constexpr std::string_view loss_unit = "nats per token";  ///< unit of the mean loss over targets

  Tensor<const std::int32_t> tokens;   // [sequences * S]
  Tensor<const std::int32_t> targets;  // [sequences * S]; may be empty if only logits are computed
  std::int64_t sequences = 0;
  device::CumulativeLengths documents = {};  ///< [documents + 1]; empty if each sequence is one document
  nn::Noise noise = {};                      ///< random numbers for dropout in training; disabled by default
  std::int64_t first_row = 0;                ///< index in the batch of this part's first row; 0 if the batch is whole
  std::int64_t all_rows = 0;  ///< number of rows of the batch that this part was cut from; 0 if the batch is whole

  /// Returns a batch of this shape whose memory cannot be read, for dry runs.
  static TokenBatch unread(std::int64_t sequences, std::int64_t sequence_length);

  /// Throws InputError unless tokens and targets are in the vocabulary and the documents cover them.
  void validate(std::int64_t sequence_length, std::int64_t vocabulary) const;

  /// Sets the key of the random numbers. `first` is the number of the batch's first sequence among all sequences of the
  /// run, so that every sequence has different random numbers.
  void set_noise(std::uint64_t key, std::int64_t first) {
    noise = {.key = key, .first_row = first * (tokens.numel() / std::max<std::int64_t>(sequences, 1))};
  }

  /// Returns the rows of one of `parts` ranks that share the sequences (nn::rows_of_part). The result views the same
  /// memory; its `sequences` and `documents` still describe all rows. Throws LogicError if the batch is itself a part.
  TokenBatch part(int part, int parts) const;

  /// Returns the batch without targets, for passes that compute logits.
  TokenBatch without_targets() const {
    TokenBatch own = *this;
    own.targets = {};
    return own;
  }

  /// Returns the counts. A part counts only its own rows, each with the length of its document, so that the counts of
  /// all parts add up to the counts of the batch.
  BatchCounts counts() const;
  /// Returns the rows with a target, then {sequences, tokens}. Throws LogicError if the batch has documents, since they
  /// change from step to step.
  nn::RowRuns pattern() const;

  /// Tokens and targets in memory that the device can read.
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
