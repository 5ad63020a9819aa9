// SPDX-License-Identifier: Apache-2.0
/// @file
/// The collectives that a calibration measures, within nodes or between them. Measurements access a communicator only
/// through these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>

#include "collective_buffers.hpp"
#include "rounds.hpp"

namespace fsdp::calibrate {

/// The collectives of one communicator. All communicators of this kind in the cluster run them at the same time. The
/// functions own the communicator and its memory together.
struct Link {
  int ranks = 1;                               ///< number of ranks of the communicator
  int calls_of_few = 1, calls_of_many = 1;     ///< calls in one run of `few`, and in one of `gather` or `scatter`
  double bytes = 0;                            ///< bytes of the whole buffer in one call of gather and of scatter
  std::function<void()> few, gather, scatter;  ///< gathers of few bytes, gathers of many, reductions of many
  std::function<void()> exchange;              ///< all_to_all of few bytes
  /// Starts gathers of many bytes, which reuse the memory of a few calls.
  std::function<void(int calls)> start_gathers;
  std::function<bool()> last_gather_ended;
  std::function<void()> wait;  ///< waits for the gathers that were started
  /// Frees the memory but not the communicator; no function can be used afterwards.
  std::function<void()> free_buffers;
  std::size_t few_at = 0, gather_at = 0, scatter_at = 0;  ///< numbers of their cases in the rounds that time them

  void add_to(Rounds& rounds) {
    few_at = rounds.add(few);
    gather_at = rounds.add(gather);
    scatter_at = rounds.add(scatter);
  }
};

/// The gathers of few and many bytes, and the reductions of many bytes, of one communicator.
template <class Comm>
class LinkWork {
 public:
  explicit LinkWork(Comm part) : part_(std::move(part)) {
    few_.emplace(part_, std::int64_t{4096});
    many_.emplace(part_, std::int64_t{16} << 20);
  }
  LinkWork(const LinkWork&) = delete;
  LinkWork& operator=(const LinkWork&) = delete;

  static Link link(const std::shared_ptr<LinkWork>& own) {
    return {.ranks = own->part_.size(),
            .calls_of_few = own->few_->buffers.calls(),
            .calls_of_many = own->many_->buffers.calls(),
            .bytes = static_cast<double>(own->many_->buffers.bytes()),
            .few = [own] { own->run(*own->few_, gather); },
            .gather = [own] { own->run(*own->many_, gather); },
            .scatter = [own] { own->run(*own->many_, scatter); },
            .exchange = [own] { comm::all_to_all(own->part_, own->few_->buffers.exchange(0), {"calibrate"}).wait(); },
            .start_gathers =
                [own](int calls) {
                  const auto& segments = own->many_->segments;
                  for (std::size_t call = 0; call < static_cast<std::size_t>(calls); ++call)
                    own->started_.push_back(gather(own->part_, segments[call % segments.size()]));
                },
            .last_gather_ended = [own] { return own->started_.back().test(); },
            .wait = [own] { own->wait(); },
            .free_buffers =
                [own] {
                  own->few_.reset();
                  own->many_.reset();
                }};
  }

 private:
  using Segments = std::vector<comm::Segment<float>>;
  /// The buffers of the calls of a case.
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
  /// If the device has queues, calls are enqueued one after the other, as in a step.
  void run(const Calls& calls, comm::Pending<Comm> (*collective)(Comm&, const Segments&)) {
    for (const Segments& segments : calls.segments) {
      started_.push_back(collective(part_, segments));
      if constexpr (!Comm::Device::overlaps) started_.back().wait();
    }
    wait();
  }
  void wait() {
    for (auto& each : started_) each.wait();
    started_.clear();
  }

  Comm part_;
  std::optional<Calls> few_, many_;
  std::vector<comm::Pending<Comm>> started_;
};

}  // namespace fsdp::calibrate
