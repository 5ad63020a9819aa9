// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators whose exchanges are wrong in one way each; the rest is right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <range/v3/view/zip.hpp>

#include "wrong_communicators.hpp"

namespace fsdp::testing {

/// Nothing wrong. A wrong one derives from it with its own type as Own, and hides what it does otherwise.
template <class Own>
struct ExchangesOverThreads : OverThreads<Own> {
  using OverThreads<Own>::OverThreads;
  using Request = typename OverThreads<Own>::Request;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    return this->threads_.all_to_all(exchanges);
  }

 protected:
  /// What an all_to_all leaves in each `receive`, apart from them.
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

/// A rank that has nothing to send gets nothing.
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

/// Of a list it exchanges the first tensor.
struct ExchangesOneTensor : ExchangesOverThreads<ExchangesOneTensor> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    return threads_.all_to_all(exchanges.first(std::min<std::size_t>(exchanges.size(), 1)));
  }
};

/// Each exchange is done when the next one starts, or when the communicator ends.
struct ExchangesWhenItIsTooLate : ExchangesOverThreads<ExchangesWhenItIsTooLate> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    exchanged(exchanges);
    return {};
  }
};

/// What does not fit into a message is lost.
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

/// It hears nobody but itself, and so finds nobody that disagrees.
struct ExchangesUnheard : ExchangesOverThreads<ExchangesUnheard> {
  using ExchangesOverThreads::ExchangesOverThreads;
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
    for (std::size_t at = 0; at < all.size(); at += mine.size()) std::copy(mine.begin(), mine.end(), all.begin() + at);
  }
};

/// Errors that say what happened and not to whom.
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
