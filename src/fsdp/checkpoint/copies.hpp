// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares stored copies of a tensor, such as the head of a model whose head is tied to its embedding.
#pragma once

#include <string>

#include <tessera/fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

/// Throws InputError unless tensor `copy` holds the numbers of tensor `original`, which both files have. Numbers of
/// different types are equal if those of the wider type, rounded to the narrower one, are. Reads pieces of both, and
/// stops at the first difference.
void require_copy(const WeightFiles& files, const std::string& copy, const std::string& original);

}  // namespace fsdp::checkpoint
