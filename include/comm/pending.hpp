// SPDX-License-Identifier: Apache-2.0
/// @file
/// A started collective with what is known about it: label, sizes, times.
#pragma once

#include <chrono>
#include <utility>

#include <comm/communicator.hpp>

namespace fsdp::comm {

/// Counts one call into a backend: time that it did not spend moving bytes is waiting. Adds the collective to its
/// errors.
class Watched {
 public:
  Watched(Monitor& monitor, const Record& record);
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched();

  /// "rank 0, all_gather of unit 3 (...), after 20 s: " and the error's text.
  CollectiveError explain(const CollectiveError& error) const;

 private:
  double seconds() const;

  Monitor& monitor_;
  double copied_before_;
  std::chrono::steady_clock::time_point begin_;
};

/// Calls `call` and rethrows its CollectiveError with the collective named.
template <class Call>
decltype(auto) watch(Monitor& monitor, const Record& record, Call call) {
  const Watched watched(monitor, record);
  try {
    return call();
  } catch (const CollectiveError& error) {
    throw watched.explain(error);
  }
}

/// The rest of a collective. Destroying one that was not waited for waits for it; it must not outlive its communicator.
template <Communicator C>
class Pending {
 public:
  Pending() = default;
  Pending(typename C::Request request, Monitor& monitor, const Record& record)
      : request_(std::move(request)), monitor_(&monitor), record_(record) {}
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&& other) noexcept = default;

  /// Makes progress; says whether all is done.
  bool test() {
    return monitor_ == nullptr || watch(*monitor_, record_, [&] { return request_.test(); });
  }
  /// Makes progress that needs this host; where the rest is the device's, does not query it.
  void progress() {
    if constexpr (requires { request_.progress(); }) {
      if (monitor_ != nullptr) watch(*monitor_, record_, [&] { request_.progress(); });
    } else {
      test();
    }
  }
  /// Returns when this rank's results are in place and no peer uses this rank's memory any more.
  void wait() {
    if (monitor_ != nullptr) watch(*monitor_, record_, [&] { request_.wait(); });
  }
  /// The point at which the same holds, for queues to wait for; the same in every call. The host waits where there are
  /// none.
  typename C::Device::Event done() {
    if constexpr (C::Device::asynchronous) {
      if (monitor_ == nullptr) return {};
      return watch(*monitor_, record_, [&] { return request_.done(); });
    } else {
      wait();
      return {};
    }
  }
  /// What is queued from here on starts after it.
  void wait(typename C::Device::Queue& queue) { queue.wait(done()); }

 private:
  typename C::Request request_;
  Monitor* monitor_ = nullptr;
  Record record_;
};

}  // namespace fsdp::comm
