// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators with one flaw each in their exchanges; all other functions are correct.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <range/v3/view/zip.hpp>

#include "wrong_communicators.hpp"

namespace fsdp::testing {

/// A correct communicator. A flawed one derives from it with its own type as Own and hides the functions that it
/// changes.
template <class Own>
struct ExchangesOverThreads : OverThreads<Own> {
  using OverThreads<Own>::OverThreads;
  using Request = typename OverThreads<Own>::Request;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    return this->threads_.all_to_all(exchanges);
  }

 protected:
  /// Returns the results of an all_to_all in separate buffers instead of in each `receive`.
  template <class T>
  std::vector<std::vector<T>> exchanged(std::span<const comm::Exchange<T>> exchanges) {
    std::vector<std::vector<T>> results;
    std::vector<comm::Exchange<T>> apart(exchanges.begin(), exchanges.end());
    for (comm::Exchange<T>& exchange : apart)
      exchange.receive =
          results.emplace_back(static_cast<std::size_t>(this->total(exchange.receive_counts) + 1)).data();
    this->threads_.all_to_all(std::span<const comm::Exchange<T>>(apart)).wait();
    return results;
  }
};

struct RightExchanges : ExchangesOverThreads<RightExchanges> {
  using ExchangesOverThreads::ExchangesOverThreads;
};

/// A rank that sends nothing receives nothing.
struct DropsPiecesOfTheSilent : ExchangesOverThreads<DropsPiecesOfTheSilent> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    const auto results = exchanged(exchanges);
    for (const auto& [exchange, result] : ranges::views::zip(exchanges, results))
      if (total(exchange.send_counts) > 0)
        std::copy_n(result.begin(), total(exchange.receive_counts), exchange.receive);
    return {};
  }
};

/// Exchanges only the first tensor of a list.
struct ExchangesOneTensor : ExchangesOverThreads<ExchangesOneTensor> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    return threads_.all_to_all(exchanges.first(std::min<std::size_t>(exchanges.size(), 1)));
  }
};

/// Does not copy the results of an exchange to `receive`.
struct ExchangesWhenItIsTooLate : ExchangesOverThreads<ExchangesWhenItIsTooLate> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    exchanged(exchanges);
    return {};
  }
};

/// Drops data beyond the first message.
struct DropsTheRestOfAnExchange : ExchangesOverThreads<DropsTheRestOfAnExchange> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    const auto results = exchanged(exchanges);
    const std::int64_t most = monitor().options.message_bytes / static_cast<std::int64_t>(sizeof(T));
    for (const auto& [exchange, result] : ranges::views::zip(exchanges, results))
      std::copy_n(result.begin(), std::min(total(exchange.receive_counts), most), exchange.receive);
    return {};
  }
};

/// Gathers only its own bytes and therefore does not detect ranks that disagree.
struct ExchangesUnheard : ExchangesOverThreads<ExchangesUnheard> {
  using ExchangesOverThreads::ExchangesOverThreads;
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
    for (std::size_t at = 0; at < all.size(); at += mine.size()) std::copy(mine.begin(), mine.end(), all.begin() + at);
  }
};

/// Errors do not report the failed rank.
struct NamesNobodyInExchanges : ExchangesOverThreads<NamesNobodyInExchanges> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    nameless([&] { threads_.all_to_all(exchanges).wait(); });
    return {};
  }
  void barrier() {
    nameless([&] { threads_.barrier(); });
  }

 private:
  template <class Call>
  static void nameless(Call call) {
    try {
      call();
    } catch (const comm::CollectiveError&) {
      throw comm::CollectiveError("a collective failed");
    }
  }
};

}  // namespace fsdp::testing
