// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators whose exchanges are wrong in one way each; the rest is right.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

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
    for (std::size_t i = 0; i < exchanges.size(); ++i)
      if (total(exchanges[i].send_counts) > 0)
        std::copy_n(results[i].begin(), total(exchanges[i].receive_counts), exchanges[i].receive);
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

/// A rank that has read its peers goes on, although they may not have read it.
struct LetsGoOfExchangesTooEarly : ExchangesOverThreads<LetsGoOfExchangesTooEarly> {
  using ExchangesOverThreads::ExchangesOverThreads;
  using Request = LetsGoTooEarly::Request;
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    return threads_.all_gather(segments).wait(), Request();
  }
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    std::vector<LetsGoTooEarly::Copy> copies;
    for (const comm::Exchange<T>& exchange : exchanges) {
      std::vector<const T*> pieces(static_cast<std::size_t>(size() * size()));  // by sender, then by receiver
      std::vector<const T*> mine(static_cast<std::size_t>(size()), exchange.send);
      for (std::size_t peer = 1; peer < mine.size(); ++peer)
        mine[peer] = mine[peer - 1] + exchange.send_counts[peer - 1];
      threads_.gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(pieces)));
      T* to = exchange.receive;
      for (std::size_t peer = 0; peer < mine.size(); to += exchange.receive_counts[peer], ++peer)
        if (exchange.receive_counts[peer] > 0)
          copies.push_back({pieces[peer * mine.size() + static_cast<std::size_t>(rank())], to,
                            static_cast<std::size_t>(exchange.receive_counts[peer]) * sizeof(T)});
    }
    return Request(std::move(copies));
  }
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    return threads_.reduce_scatter<Wire>(segments, write).wait(), Request();
  }
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    return threads_.all_reduce<Wire>(segments).wait(), Request();
  }
};

/// What does not fit into a message is lost.
struct DropsTheRestOfAnExchange : ExchangesOverThreads<DropsTheRestOfAnExchange> {
  using ExchangesOverThreads::ExchangesOverThreads;
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    const auto results = exchanged(exchanges);
    const std::int64_t most = monitor().options.message_bytes / static_cast<std::int64_t>(sizeof(T));
    for (std::size_t i = 0; i < exchanges.size(); ++i)
      std::copy_n(results[i].begin(), std::min(total(exchanges[i].receive_counts), most), exchanges[i].receive);
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
