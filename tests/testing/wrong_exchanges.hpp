// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators with one flaw each in their requests or exchanges; all other functions are correct.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <range/v3/view/zip.hpp>

#include "wrong_communicators.hpp"

namespace fsdp::testing {

/// Completes early: only its destructor waits.
struct CompletesEarly : OverThreads<CompletesEarly> {
  using OverThreads::OverThreads;
  struct Request {
    Threads::Request inner;
    static bool test() { return true; }
    static void wait() {}
  };
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    return {threads_.all_gather(segments)};
  }
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    return {threads_.reduce_scatter<Wire>(segments, write)};
  }
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    return {threads_.all_reduce<Wire>(segments)};
  }
};

/// A rank that has read its peers continues although they may not have read its data yet.
struct LetsGoTooEarly : OverThreads<LetsGoTooEarly> {
  using OverThreads::OverThreads;
  struct Copy {
    const void* from;
    void* to;
    std::size_t bytes;
  };
  struct Request {
    std::vector<Copy> copies;
    Request() = default;
    explicit Request(std::vector<Copy> list) : copies(std::move(list)) {}
    Request(Request&&) = default;
    Request& operator=(Request&&) = default;
    ~Request() { wait(); }
    bool test() { return wait(), true; }
    void wait() {
      for (const Copy& copy : std::exchange(copies, {})) std::memmove(copy.to, copy.from, copy.bytes);
    }
  };
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    std::vector<Copy> copies;
    for (const comm::Segment<T>& segment : segments) {
      std::vector<const T*> locals(static_cast<std::size_t>(size()));
      const T* const mine = segment.local;
      threads_.gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(locals)));
      T* to = segment.full;
      for (std::size_t peer = 0; peer < locals.size(); to += segment.counts[peer], ++peer)
        if (segment.counts[peer] > 0)
          copies.push_back({locals[peer], to, static_cast<std::size_t>(segment.counts[peer]) * sizeof(T)});
    }
    return Request(std::move(copies));
  }
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    std::vector<Copy> copies;
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

/// A request without a wait leaves `full` unchanged.
struct ForgetsUnwaitedRequests : OverThreads<ForgetsUnwaitedRequests> {
  using OverThreads::OverThreads;
  struct Request {
    std::vector<std::byte> bytes;
    std::byte* to = nullptr;
    Request() = default;
    Request(Request&&) = default;
    Request& operator=(Request&&) = default;
    bool test() { return wait(), true; }
    void wait() { std::copy(bytes.begin(), bytes.end(), to); }
  };
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {  // supports one segment only
    const auto results = gathered(segments);
    Request request;
    const auto bytes = std::as_bytes(std::span(results[0]));
    request.bytes.assign(bytes.begin(), bytes.end());
    request.to = reinterpret_cast<std::byte*>(segments[0].full);
    return request;
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
