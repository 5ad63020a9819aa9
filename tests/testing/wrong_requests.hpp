// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators whose requests complete at the wrong time; all other functions are correct.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

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

}  // namespace fsdp::testing
