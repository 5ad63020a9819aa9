// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `tessera calibrate` measures of links: collectives inside of nodes, and between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>

#include "collectives.hpp"
#include "rounds.hpp"

namespace fsdp::bench {

/// Cases of the collectives of one kind of link.
struct LinkCases {
  int ranks = 1;  ///< of a communicator
  std::size_t few = 0, gather = 0, scatter = 0;
  int calls_of_few = 1, calls_of_many = 1;  ///< in one case
  double bytes = 0;                         ///< of one call of gather, and of scatter: a whole buffer
};

/// Gathers of few and many bytes, and reductions of many, of one communicator. All such communicators of the cluster
/// run them at the same time.
template <class Comm>
class LinkWorks {
 public:
  static constexpr std::int64_t few_bytes = 4096, many_bytes = std::int64_t{16} << 20;

  explicit LinkWorks(Comm part) : part_(std::move(part)) {
    few_.emplace(part_, few_bytes);
    many_.emplace(part_, many_bytes);
  }
  LinkWorks(const LinkWorks&) = delete;
  LinkWorks& operator=(const LinkWorks&) = delete;

  LinkCases add_to(Rounds& rounds) {
    return {.ranks = part_.size(),
            .few = add(rounds, *few_, gather),
            .gather = add(rounds, *many_, gather),
            .scatter = add(rounds, *many_, scatter),
            .calls_of_few = few_->buffers.calls(),
            .calls_of_many = many_->buffers.calls(),
            .bytes = static_cast<double>(many_->buffers.bytes())};
  }
  /// Starts a gather of many bytes. There is memory for a few calls; later ones gather there again.
  comm::Pending<Comm> start_gather(int call) {
    return gather(part_, many_->segments[static_cast<std::size_t>(call) % many_->segments.size()]);
  }
  /// Exchanges few bytes.
  void exchange() { comm::all_to_all(part_, few_->buffers.exchange(0), {"calibrate"}).wait(); }
  /// Leaves the communicator alone, which then can do no more of these.
  void free_buffers() {
    few_.reset();
    many_.reset();
  }

 private:
  using Segments = std::vector<comm::Segment<float>>;
  /// What the calls of a case move.
  struct Calls {
    Calls(Comm& part, std::int64_t bytes)
        : buffers(bytes, part.rank(), part.size(), [&](std::int64_t size) { return comm::shared_memory(part, size); }) {
      for (int call = 0; call < buffers.calls(); ++call) segments.push_back(buffers.apart(call));
    }
    CollectiveBuffers<typename Comm::Device> buffers;
    std::vector<Segments> segments;
  };

  static comm::Pending<Comm> gather(Comm& part, const Segments& segments) {
    return comm::all_gather(part, segments, {"calibrate"});
  }
  static comm::Pending<Comm> scatter(Comm& part, const Segments& segments) {
    return comm::reduce_scatter<float>(part, segments, Write::overwrite, {"calibrate"});
  }
  /// Adds a case. As in a step, calls are queued one behind another where the device has queues.
  template <class Collective>
  std::size_t add(Rounds& rounds, const Calls& calls, Collective collective) {
    return rounds.add([this, &calls, collective] {
      std::vector<comm::Pending<Comm>> started;
      for (const Segments& segments : calls.segments) {
        started.push_back(collective(part_, segments));
        if constexpr (!Comm::Device::overlaps) started.back().wait();
      }
      for (auto& each : started) each.wait();
    });
  }

  Comm part_;
  std::optional<Calls> few_, many_;
};

}  // namespace fsdp::bench
