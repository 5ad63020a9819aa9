// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators with one flaw each in their requests, which are of their own types; all other functions are correct.
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

/// A communicator that waits for its reductions at once. Its requests are of another type.
template <class Own, class RequestT>
struct WithRequests : OverThreads<Own> {
  using OverThreads<Own>::OverThreads;
  using Request = RequestT;
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    this->threads_.template reduce_scatter<Wire>(segments, write).wait();
    return {};
  }
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    this->threads_.template all_reduce<Wire>(segments).wait();
    return {};
  }
};

/// Copies memory of peers when it is waited for.
struct LateCopies {
  struct Copy {
    const void* from;
    void* to;
    std::size_t bytes;
  };
  std::vector<Copy> copies;
  LateCopies() = default;
  LateCopies(LateCopies&&) = default;
  LateCopies& operator=(LateCopies&&) = default;
  ~LateCopies() { wait(); }
  template <class T>
  void add(const T* from, T*& to, std::int64_t count) {
    if (count > 0) copies.push_back({from, to, static_cast<std::size_t>(count) * sizeof(T)});
    to += count;
  }
  bool test() { return wait(), true; }
  void wait() {
    for (const Copy& copy : std::exchange(copies, {})) std::memmove(copy.to, copy.from, copy.bytes);
  }
};

/// A rank that has read its peers continues although they may not have read its data yet.
struct LetsGoTooEarly : WithRequests<LetsGoTooEarly, LateCopies> {
  using WithRequests::WithRequests;
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    Request request;
    for (const comm::Segment<T>& segment : segments) {
      std::vector<const T*> locals(static_cast<std::size_t>(size()));
      const T* const mine = segment.local;
      threads_.gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(locals)));
      T* to = segment.full;
      for (std::size_t peer = 0; peer < locals.size(); ++peer) request.add(locals[peer], to, segment.counts[peer]);
    }
    return request;
  }
  template <class T>
  Request all_to_all(std::span<const comm::Exchange<T>> exchanges) {
    Request request;
    for (const comm::Exchange<T>& exchange : exchanges) {
      std::vector<const T*> pieces(static_cast<std::size_t>(size() * size()));  // by sender, then by receiver
      std::vector<const T*> mine(static_cast<std::size_t>(size()), exchange.send);
      for (std::size_t peer = 1; peer < mine.size(); ++peer)
        mine[peer] = mine[peer - 1] + exchange.send_counts[peer - 1];
      threads_.gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(pieces)));
      T* to = exchange.receive;
      for (std::size_t peer = 0; peer < mine.size(); ++peer)
        request.add(pieces[peer * mine.size() + static_cast<std::size_t>(rank())], to, exchange.receive_counts[peer]);
    }
    return request;
  }
};

/// Copies the result of an all_gather when it is waited for.
struct UnwaitedRequest {
  std::vector<std::byte> bytes;
  std::byte* to = nullptr;
  UnwaitedRequest() = default;
  UnwaitedRequest(UnwaitedRequest&&) = default;
  UnwaitedRequest& operator=(UnwaitedRequest&&) = default;
  bool test() { return wait(), true; }
  void wait() { std::ranges::copy(bytes, to); }
};

/// A request without a wait leaves `full` unchanged.
struct ForgetsUnwaitedRequests : WithRequests<ForgetsUnwaitedRequests, UnwaitedRequest> {
  using WithRequests::WithRequests;
  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {  // supports one segment only
    const auto results = gathered(segments);
    const auto bytes = std::as_bytes(std::span(results[0]));
    Request request;
    request.bytes.assign(bytes.begin(), bytes.end());
    request.to = reinterpret_cast<std::byte*>(segments[0].full);
    return request;
  }
};

}  // namespace fsdp::testing
