// SPDX-License-Identifier: Apache-2.0
/// @file
/// A started collective together with its record, so that errors identify it and its time is counted.
#pragma once

#include <chrono>
#include <utility>

#include <tessera/comm/communicator.hpp>

namespace fsdp::comm {

/// Times one call into a backend: adds the time not spent moving bytes to Totals::waiting_seconds. Adds the
/// collective's description to errors.
class Watched {
 public:
  Watched(Monitor& monitor, const Record& record);
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched();

  /// Returns the error with a prefix: "rank 0, all_gather of unit 3 (...), after 20.000 s: ".
  CollectiveError explain(const CollectiveError& error) const;

 private:
  double seconds() const;

  Monitor& monitor_;
  double copied_before_;
  std::chrono::steady_clock::time_point begin_;
};

/// Calls `call` and adds the collective's description to its CollectiveError.
template <class Call>
decltype(auto) watch(Monitor& monitor, const Record& record, Call call) {
  const Watched watched(monitor, record);
  try {
    return call();
  } catch (const CollectiveError& error) {
    throw watched.explain(error);
  }
}

/// A collective that was started. The destructor waits for it unless the caller has. It must not outlive its
/// communicator.
template <Communicator C>
class Pending {
 public:
  Pending() = default;
  Pending(typename C::Request request, Monitor& monitor, const Record& record)
      : request_(std::move(request)), monitor_(&monitor), record_(record) {}
  Pending(Pending&& other) noexcept = default;
  Pending& operator=(Pending&& other) noexcept = default;

  /// Makes progress and returns whether the collective is complete.
  bool test() {
    return monitor_ == nullptr || watch(*monitor_, record_, [&] { return request_.test(); });
  }
  /// Does the host's share of the work, without waiting. Unlike `test` it does not query the device.
  void progress() {
    if constexpr (requires { C::Request::complete; }) return;
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
  /// Returns the event after which `wait` would return, for queues to wait on; the same event in every call. On a
  /// synchronous device, it blocks until the collective is complete.
  typename C::Device::Event done() {
    if constexpr (C::Device::asynchronous) {
      if (monitor_ == nullptr) return {};
      return watch(*monitor_, record_, [&] { return request_.done(); });
    } else {
      wait();
      return {};
    }
  }
  /// Makes all work enqueued on `queue` after this call start after this collective.
  void wait(typename C::Device::Queue& queue) { queue.wait(done()); }

 private:
  typename C::Request request_;
  Monitor* monitor_ = nullptr;
  Record record_;
};

}  // namespace fsdp::comm
