// SPDX-License-Identifier: Apache-2.0
/// @file
/// Agreement between ranks: gathers texts, and compares the ranks' arguments and input files.
///
/// Every function with ranks as its argument is collective and exchanges a few bytes per rank.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::comm {

/// Returns the name of a rank for error messages, with its host if the ranks are on several hosts.
std::string name_of(const Monitor& monitor, std::ptrdiff_t rank);

/// Throws InputError unless all texts are equal; quotes the first line that differs from rank 0's, and both versions of
/// it. `what`: a description of the problem, such as "ranks were started with different arguments". `then`: the remedy.
void require_same_texts(const Monitor& monitor, std::span<const std::string> texts, std::string_view what,
                        std::string_view then);

/// Returns every rank's text, by rank. Texts must not contain NUL. `label`: identifies the collective in errors.
std::vector<std::string> gather_texts(const Ranks& ranks, const std::string& mine, std::string_view label);

/// Under Options::checks, throws the same InputError on every rank unless all ranks pass the same text of lines "name =
/// value"; without Options::checks, `text` is not called. `what`: as in require_same_texts.
void check_same(const Ranks& ranks, std::string_view label, std::string_view what, FunctionRef<std::string()> text);

/// Throws the same InputError on every rank unless flags, policies and the program's build are equal on all ranks.
void agree_on_arguments(const Ranks& ranks, const std::string& arguments);

/// Throws the same InputError on every rank unless all ranks pass the same text about the files that they opened.
/// `opened`: lines of "name = value".
void agree_on_opened(const Ranks& ranks, const std::string& opened);

}  // namespace fsdp::comm
