// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/agreement.hpp>

#include <algorithm>
#include <exception>

#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {
namespace {

constexpr char stopped = 's';  ///< followed by the signal's number as a character
constexpr char other = 'o';

/// Calls visit.operator()<Type>(letter) for each exception type that other ranks rethrow as the same type, except
/// StoppedError. All other types are rethrown as Error.
template <class Visit>
void for_each_type(const Visit& visit) {
  visit.template operator()<InputError>('i');
  visit.template operator()<LogicError>('l');
  visit.template operator()<MemoryError>('m');
  visit.template operator()<DivergedError>('d');
  visit.template operator()<CorruptionError>('c');
}

}  // namespace

std::string encoded_exception() {
  try {
    throw;
  } catch (const CollectiveError&) {
    throw;
  } catch (const StoppedError& error) {
    return {stopped + std::string(1, static_cast<char>(error.signal_number())) + error.what()};
  } catch (const std::exception& error) {
    char type = other;
    for_each_type([&]<class Type>(char letter) {
      if (dynamic_cast<const Type*>(&error) != nullptr) type = letter;
    });
    return type + std::string(error.what());
  } catch (...) {
    return other + std::string("an exception of unknown type");
  }
}

void throw_first(std::span<const std::string> exceptions, const Monitor* monitor) {
  const auto first = std::ranges::find_if(exceptions, [](const std::string& each) { return !each.empty(); });
  if (first == exceptions.end()) return;
  const char type = first->front();
  if (type == stopped) throw StoppedError((*first)[1], first->substr(2));
  const bool named = monitor != nullptr && std::ranges::count(exceptions, *first) != std::ssize(exceptions);
  const std::string text = (named ? name_of(*monitor, first - exceptions.begin()) + ": " : "") + first->substr(1);
  for_each_type([&]<class Type>(char letter) {
    if (letter == type) throw Type(text);
  });
  throw Error(text);
}

void detail::call_together(const Ranks& ranks, std::string_view label, FunctionRef<void()> f) {
  std::string mine;
  try {
    f();
  } catch (...) {
    mine = encoded_exception();
  }
  throw_first(gather_texts(ranks, mine, label), &ranks.monitor());
}

}  // namespace fsdp::comm
