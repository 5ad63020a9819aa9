// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares stored copies of a tensor, such as the head of a model whose head is tied to its embedding.
#pragma once

#include <string>

#include <tessera/fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

/// Throws InputError unless tensor `copy` has the same values as tensor `original`; both must be in `files`. Numbers of
/// different types are equal if the wider one, rounded to the narrower type, equals the narrower one. Reads both in
/// pieces, and stops at the first difference.
void require_copy(const WeightFiles& files, const std::string& copy, const std::string& original);

}  // namespace fsdp::checkpoint
