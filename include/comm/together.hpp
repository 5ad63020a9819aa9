// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collective error handling: encodes the exception of one rank, and throws it on all ranks with its type and text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::comm {

/// Encodes the exception that is being handled as a text for gather_texts (agreement.hpp), never empty; call it in a
/// catch block. Rethrows a CollectiveError, since ranks can no longer communicate after it.
std::string encoded_exception();

/// Decodes the first text that is not empty and throws its exception. `exceptions`: one text per rank. `monitor`: if
/// given, the message identifies the rank, unless all ranks have the same exception.
void throw_first(std::span<const std::string> exceptions, const Monitor* monitor = nullptr);

namespace detail {

/// Implements `together` for an f that returns void.
void call_together(const Ranks& ranks, std::string_view label, FunctionRef<void()> f);

/// Calls run(f) and returns the result of f.
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
/// rank. f must not start collectives. Collective; exchanges a few bytes per rank. `label`: a literal that describes f.
template <class F>
auto together(const Ranks& ranks, std::string_view label, F f) {
  return detail::result_of(f, [&](FunctionRef<void()> call) { detail::call_together(ranks, label, call); });
}

}  // namespace fsdp::comm
