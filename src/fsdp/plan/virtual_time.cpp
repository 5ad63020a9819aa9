// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/virtual_time.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

/// Advances the operations from event to event. At most one operation of a track is in flight.
class Clock {
 public:
  explicit Clock(std::span<const Work> works) : works_(works), spans_(works.size()), left_(works.size()) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      const auto track = static_cast<std::size_t>(works[i].track);
      if (track >= tracks_.size()) tracks_.resize(track + 1);
      tracks_[track].works.push_back(i);
      left_[i] = {works[i].seconds, works[i].transfer};
      for (const int other : works[i].after)
        require(other >= 0 && other < static_cast<int>(i), "virtual time: work ", i, " waits for work ", other,
                ", which is not before it");
    }
  }

  std::vector<Span> run() {
    for (begin_all(); advance(); begin_all()) {
    }
    return std::move(spans_);
  }

 private:
  struct Track {
    std::vector<std::size_t> works;
    std::size_t next = 0;  ///< index into `works`
    bool running = false;  ///< whether works[next] is in flight
    double free = 0;       ///< end time of its last operation
  };
  struct Left {
    double seconds, transfer;
    bool over = false;
  };

  bool may_begin(std::size_t work) const {
    return std::ranges::all_of(works_[work].after,
                               [&](int other) { return left_[static_cast<std::size_t>(other)].over; });
  }
  /// Begins every operation that is ready, and ends those without duration at once, until nothing changes.
  void begin_all() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Track& track : tracks_)
        while (!track.running && track.next < track.works.size() && may_begin(track.works[track.next])) {
          begin(track);
          changed = true;
          if (left_[track.works[track.next]].seconds > 0 || left_[track.works[track.next]].transfer > 0) break;
          end(track);
        }
    }
  }
  void begin(Track& track) {
    const std::size_t work = track.works[track.next];
    track.running = true;
    Span& span = spans_[work];
    span.begin = now_;
    double last = track.free;
    for (const int other : works_[work].after)
      if (spans_[static_cast<std::size_t>(other)].end > last) {
        last = spans_[static_cast<std::size_t>(other)].end;
        span.waited_for = other;
      }
  }
  void end(Track& track) {
    const std::size_t work = track.works[track.next++];
    track.running = false;
    track.free = now_;
    spans_[work].end = now_;
    left_[work].over = true;
  }

  /// Returns the relative speed of a transfer next to all transfers in flight; 1 if it is alone.
  double speed(const Work& work, const ByLink& load) const {
    double most = 1;
    for (std::size_t link = 0; link < link_count; ++link)
      if (work.demand[link] > 0) most = std::max(most, load[link]);
    return 1 / most;
  }
  /// Returns the relative speed at which an operation's seconds pass during the transfers in flight.
  static double pace(const Work& work, const ByLink& load) {
    const bool between_ranks =
        load[static_cast<std::size_t>(Link::node)] > 0 || load[static_cast<std::size_t>(Link::network)] > 0;
    return between_ranks ? work.beside : 1;
  }
  /// Advances to the next event. Returns false if no operation is in flight.
  bool advance() {
    ByLink load = {};
    for (const Track& track : tracks_)
      if (transfers(track))
        for (std::size_t link = 0; link < link_count; ++link) load[link] += works_[work_of(track)].demand[link];
    double step = std::numeric_limits<double>::infinity();
    for (const Track& track : tracks_)
      if (track.running) step = std::min(step, time_left(track, load));
    if (step == std::numeric_limits<double>::infinity()) return false;
    now_ += step;
    for (Track& track : tracks_)
      if (track.running) move(track, load, step);
    return true;
  }
  static std::size_t work_of(const Track& track) { return track.works[track.next]; }
  bool transfers(const Track& track) const { return track.running && left_[work_of(track)].seconds <= 0; }
  /// Returns the time to the end of the current phase of a track's operation.
  double time_left(const Track& track, const ByLink& load) const {
    const Left& left = left_[work_of(track)];
    const Work& work = works_[work_of(track)];
    return left.seconds > 0 ? left.seconds / pace(work, load) : left.transfer / speed(work, load);
  }
  void move(Track& track, const ByLink& load, double step) {
    constexpr double same = 1 + 1e-12;  // phases whose ends differ only by rounding end in one event
    Left& left = left_[work_of(track)];
    const bool ends = time_left(track, load) <= step * same;
    if (left.seconds > 0) {
      left.seconds = ends ? 0 : left.seconds - step * pace(works_[work_of(track)], load);
      if (left.seconds <= 0 && left.transfer <= 0) end(track);
    } else {
      left.transfer = ends ? 0 : left.transfer - step * speed(works_[work_of(track)], load);
      if (left.transfer <= 0) end(track);
    }
  }

  std::span<const Work> works_;
  std::vector<Span> spans_;
  std::vector<Left> left_;
  std::vector<Track> tracks_;
  double now_ = 0;
};

}  // namespace

std::vector<Span> spans_of(std::span<const Work> works) { return Clock(works).run(); }

}  // namespace fsdp::plan
