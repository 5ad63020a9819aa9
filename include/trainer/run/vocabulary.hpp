// SPDX-License-Identifier: Apache-2.0
/// @file
/// The size of a model's vocabulary.
#pragma once

#include <cstdint>

#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::train {

/// Returns the size of the vocabulary of a model of text.
template <class Model>
std::int64_t vocabulary_of(const Model& model) {
  if constexpr (requires { model.config().vocab_size; }) {
    return model.config().vocab_size;
  } else {
    static_assert(
        nn::GeneratingHead<typename Model::Head, typename Model::Local>,
        "fsdp: nothing says how many tokens this model knows, so that text cannot be checked against it; give "
        "its Config a std::int64_t vocab_size, or its head logits");
    return model.head().logits_columns();
  }
}

}  // namespace fsdp::train
