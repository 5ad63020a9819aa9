// SPDX-License-Identifier: Apache-2.0
/// @file
/// Agreement between ranks: compares their arguments and input files, and rethrows an error of one rank on all ranks.
///
/// Every function with ranks as its argument is collective and exchanges a few bytes per rank.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::comm {

/// An exception in a form that can be sent to other ranks. An empty text means no error.
struct Complaint {
  /// The exception's type: Error, InputError, LogicError, MemoryError, DivergedError or StoppedError.
  enum class Family : char { other = 'o', input = 'i', logic = 'l', memory = 'm', diverged = 'd', stopped = 's' };
  Family family = Family::other;
  std::string text = {};  ///< stopped: after a character whose code is the signal
};

/// Converts the exception that is being handled; call it in a catch block. Rethrows a CollectiveError, after which
/// ranks can no longer communicate.
Complaint complaint_in_flight();

/// Throws the first complaint that is not empty, as an exception of its family. The text names the rank, unless all
/// ranks have the same complaint. `complaints`: by rank; the family's character, then the text.
void throw_first(const Monitor& monitor, std::span<const std::string> complaints);

/// Throws InputError unless all texts are equal; quotes the first line that differs from rank 0's, and both versions of
/// it. `what`: the problem, such as "ranks were started with different arguments". `then`: what to do.
void require_same_texts(const Monitor& monitor, std::span<const std::string> texts, std::string_view what,
                        std::string_view then);

/// Returns every rank's text, by rank. Texts must not contain NUL. `label`: names the collective in errors.
std::vector<std::string> gather_texts(const Ranks& ranks, const std::string& mine, std::string_view label);

namespace detail {

/// on_all_ranks for an f that returns nothing.
void call_on_all_ranks(const Ranks& ranks, std::string_view label, FunctionRef<void()> f);

/// Calls run(f) and returns what f returned.
template <class F, class Run>
auto result_of(F& f, const Run& run) {
  using Result = std::invoke_result_t<F&>;
  if constexpr (std::is_void_v<Result>) {
    run(FunctionRef<void()>(f));
  } else {
    std::optional<Result> result;
    const auto keep = [&] { result.emplace(f()); };
    run(FunctionRef<void()>(keep));
    return std::move(*result);
  }
}

}  // namespace detail

/// Calls f() on every rank and returns its result. If f throws on any rank, all ranks throw the error of the first such
/// rank. f must not start collectives. `label`: a literal that says what f is about.
template <class F>
auto on_all_ranks(const Ranks& ranks, std::string_view label, F f) {
  return detail::result_of(f, [&](FunctionRef<void()> call) { detail::call_on_all_ranks(ranks, label, call); });
}

/// Throws the same InputError on every rank unless flags, policies and the program's build are equal on all ranks.
void agree_on_arguments(const Ranks& ranks, const std::string& arguments);

/// Throws the same InputError on every rank unless all ranks pass the same text about the files that they opened.
/// `opened`: lines of "name = value".
void agree_on_opened(const Ranks& ranks, const std::string& opened);

}  // namespace fsdp::comm
