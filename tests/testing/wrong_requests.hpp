// SPDX-License-Identifier: Apache-2.0
/// @file
/// A communicator with one flaw in its requests, which is selected at run time; all other functions are correct.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "wrong_communicators.hpp"

namespace fsdp::testing {

/// A request with the flaw `comm_flaw`.
struct WrongRequest {
  struct Copy {
    const void* from;
    void* to;
    std::size_t bytes;
  };

  WrongRequest() = default;
  WrongRequest(WrongRequest&&) = default;
  WrongRequest& operator=(WrongRequest&&) = default;
  ~WrongRequest() {
    if (comm_flaw == CommFlaw::lets_go_too_early) wait();
  }
  template <class T>
  void add(const T* from, T*& to, std::int64_t count) {
    if (count > 0) copies.push_back({from, to, static_cast<std::size_t>(count) * sizeof(T)});
    to += count;
  }
  bool test() { return wait(), true; }
  void wait() {
    for (const Copy& copy : std::exchange(copies, {})) std::memmove(copy.to, copy.from, copy.bytes);
  }

  comm::Threads<>::Request inner;  ///< its destructor waits
  std::vector<Copy> copies;        ///< made when it is waited for
  std::vector<std::byte> held;     ///< results from which `copies` copies
};

struct WrongRequests : OverThreads<WrongRequests> {
  using OverThreads::OverThreads;
  using Request = WrongRequest;

  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    Request request;
    if (comm_flaw == CommFlaw::completes_early) {
      request.inner = threads_.all_gather(segments);
    } else if (comm_flaw == CommFlaw::forgets_unwaited_requests) {  // supports one segment only
      const auto results = gathered(segments);
      const auto bytes = std::as_bytes(std::span(results[0]));
      request.held.assign(bytes.begin(), bytes.end());
      request.copies.push_back({request.held.data(), segments[0].full, bytes.size()});
    } else {
      for (const comm::Segment<T>& segment : segments) {
        std::vector<const T*> locals(static_cast<std::size_t>(size()));
        const T* const mine = segment.local;
        threads_.gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(locals)));
        T* to = segment.full;
        for (std::size_t peer = 0; peer < locals.size(); ++peer) request.add(locals[peer], to, segment.counts[peer]);
      }
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
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    return reduced(threads_.reduce_scatter<Wire>(segments, write));
  }
  template <class Wire>
  Request all_reduce(std::span<const comm::Segment<float>> segments) {
    return reduced(threads_.all_reduce<Wire>(segments));
  }

 private:
  /// Waits at once unless reductions complete early too.
  static Request reduced(Threads::Request inner) {
    if (comm_flaw != CommFlaw::completes_early) inner.wait();
    Request request;
    request.inner = std::move(inner);
    return request;
  }
};

}  // namespace fsdp::testing
