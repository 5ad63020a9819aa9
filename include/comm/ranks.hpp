// SPDX-License-Identifier: Apache-2.0
/// @file
/// What host code of all backends exchanges between ranks: a type-erased communicator for small values, agreement on
/// texts (arguments, input files), and failing together, where the exception of one rank is thrown on all ranks with
/// its type and text.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::comm {

/// A non-owning reference to a communicator of any type. Its collectives call those of tessera/comm/collectives.hpp.
class Ranks {
 public:
  /// Refers to `communicator`, which must outlive this object and its copies.
  template <class C>
  requires(!std::same_as<std::remove_const_t<C>, Ranks> && Communicator<C>) Ranks(C& communicator)
      : communicator_(&communicator),
        monitor_(&communicator.monitor()),
        rank_(communicator.rank()),
        size_(communicator.size()),
        calls_(&calls<C>) {}

  /// See Communicator.
  /// @{
  int rank() const { return rank_; }
  int size() const { return size_; }
  Monitor& monitor() const { return *monitor_; }
  /// @}

  /// Collectives of small values in host memory.
  /// @{
  void reduce(std::span<std::int64_t> values, Reduction reduction, Label label = {}) const {
    calls_->reduce_counts(communicator_, values, reduction, label);
  }
  void reduce(std::span<double> values, Reduction reduction, Label label = {}) const {
    calls_->reduce_values(communicator_, values, reduction, label);
  }
  void broadcast(std::span<std::byte> bytes, int root, Label label = {}) const {
    calls_->broadcast(communicator_, bytes, root, label);
  }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, Label label = {}) const {
    calls_->gather_bytes(communicator_, mine, all, label);
  }
  void barrier(Label label = {}) const { calls_->barrier(communicator_, label); }
  /// @}

 private:
  struct Calls {
    void (*reduce_counts)(void*, std::span<std::int64_t>, Reduction, Label);
    void (*reduce_values)(void*, std::span<double>, Reduction, Label);
    void (*broadcast)(void*, std::span<std::byte>, int, Label);
    void (*gather_bytes)(void*, std::span<const std::byte>, std::span<std::byte>, Label);
    void (*barrier)(void*, Label);
  };
  template <class C, class T>
  static void reduce_by(void* c, std::span<T> values, Reduction reduction, Label label) {
    comm::reduce(*static_cast<C*>(c), values, reduction, label);
  }
  template <class C>
  static void broadcast_by(void* c, std::span<std::byte> bytes, int root, Label label) {
    comm::broadcast(*static_cast<C*>(c), bytes, root, label);
  }
  template <class C>
  static void gather_bytes_by(void* c, std::span<const std::byte> mine, std::span<std::byte> all, Label label) {
    comm::gather_bytes(*static_cast<C*>(c), mine, all, label);
  }
  template <class C>
  static void barrier_by(void* c, Label label) {
    comm::barrier(*static_cast<C*>(c), label);
  }
  template <class C>
  static constexpr Calls calls = {reduce_by<C, std::int64_t>, reduce_by<C, double>, broadcast_by<C>, gather_bytes_by<C>,
                                  barrier_by<C>};

  void* communicator_;
  Monitor* monitor_;
  int rank_, size_;
  const Calls* calls_;
};

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

/// Returns the exception that is being handled as text for gather_texts, never empty; call it in a
/// catch block. Rethrows a CollectiveError, after which ranks can no longer communicate.
std::string encoded_exception();

/// Throws the first text that is not empty as the exception that it encodes. `exceptions`: by rank. `monitor`: if
/// given, the message names the rank, unless all ranks have the same exception.
void throw_first(std::span<const std::string> exceptions, const Monitor* monitor = nullptr);

namespace detail {

/// together for an f that returns nothing.
void call_together(const Ranks& ranks, std::string_view label, FunctionRef<void()> f);

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
/// rank. f must not start collectives. Collective; exchanges a few bytes per rank. `label`: a literal that says what f
/// is about.
template <class F>
auto together(const Ranks& ranks, std::string_view label, F f) {
  return detail::result_of(f, [&](FunctionRef<void()> call) { detail::call_together(ranks, label, call); });
}

}  // namespace fsdp::comm
