// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/step_works.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/event_order.hpp>

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

using sharding::Queues;

/// Returns the track of a communicator's queue; these follow the device's, in the order of the axes.
Track track_of(Axis axis) { return static_cast<Track>(static_cast<int>(Track::world) + static_cast<int>(axis)); }

double matmul_seconds(const Cluster& cluster, const device::MatmulRecord& matmul) {
  const auto m = static_cast<double>(matmul.m), n = static_cast<double>(matmul.n), k = static_cast<double>(matmul.k);
  const double read = (m * k + k * n) * static_cast<double>(size_of(matmul.operands));
  const double written = m * n * static_cast<double>(size_of(matmul.result)) * (matmul.accumulate ? 2 : 1);
  const double rate = cluster.matmul(matmul.operands, std::min({matmul.m, matmul.n, matmul.k}));
  return std::max(2 * m * n * k / rate, (read + written) / cluster.memory_bandwidth);
}

/// Assembles the operations of a step.
class StepWorks {
 public:
  StepWorks(const Cluster& cluster, const StepRecord& record) : cluster_(cluster), record_(record) {}

  std::vector<NamedWork> run() {
    for (const RecordedCollective& collective : record_.counts.collectives) add_collective("counts", collective, {});
    if (cluster_.collectives_have_queues)
      add_queued();
    else
      for (task_ = 0; task_ < std::ssize(record_.tasks); ++task_)
        add_in_order(record_.tasks[static_cast<std::size_t>(task_)]);
    task_ = -1;
    add_optimizer();
    return std::move(works_);
  }

 private:
  std::string name_of(const sharding::Task& task) const {
    return std::string(sharding::name_of(task.action)) + " " + std::to_string(task.index);
  }
  int last() const { return static_cast<int>(works_.size()) - 1; }
  void push(NamedWork work, Track track, std::vector<int> after) {
    if (!cluster_.collectives_have_queues) {
      track = Track::compute;
      after.clear();
    }
    work.work.track = static_cast<int>(track);
    work.work.after = std::move(after);
    work.task = task_;
    works_.push_back(std::move(work));
  }
  void add_compute(const std::string& name, double seconds, std::vector<int> after) {
    push({.work = {.seconds = seconds, .beside = cluster_.beside_collectives}, .kind = WorkKind::compute, .name = name},
         Track::compute, std::move(after));
  }
  static NamedWork transfer(const std::string& name, const CollectiveTime& time, WorkKind kind) {
    return {.work = {.seconds = time.latency, .transfer = time.transfer, .demand = time.demand},
            .kind = kind,
            .name = name,
            .bytes = time.bytes};
  }
  void add_collective(const std::string& name, const RecordedCollective& each, std::vector<int> after) {
    push(transfer(name, collective_time(cluster_, each.op, each.bytes, record_.members(each.axis)),
                  WorkKind::collective),
         track_of(each.axis), std::move(after));
  }
  void add_copy(const std::string& name, std::int64_t bytes, std::vector<int> after) {
    push(transfer(name, host_copy_time(cluster_, bytes), WorkKind::copy), Track::host, std::move(after));
  }

  void add_in_order(const RecordedTask& each) {
    const std::string name = name_of(each.task);
    if (const double seconds = compute_seconds(cluster_, each.work, record_.compute); seconds > 0)
      add_compute(name, seconds, {});
    for (const RecordedCollective& collective : each.work.collectives) add_collective(name, collective, {});
    if (each.work.host_bytes > 0) add_copy(name, each.work.host_bytes, {});
  }

  /// Adds the operations of the schedule's queues, and the computations of tasks without an operation there.
  void add_queued() {
    require<InputError>(
        sharding::first_race(record_.schedule, record_.problem) == sharding::Race{},
        "plan: the cluster's collectives_have_queues is true, and this stack's schedule is for a device "
        "whose collectives have none; set it to false, or take a stack on such a device");
    const std::vector<sharding::QueuedWork> queued = sharding::queued_works(record_.schedule, record_.problem);
    auto next = queued.begin();
    for (task_ = 0; task_ < std::ssize(record_.tasks); ++task_) {
      const RecordedTask& each = record_.tasks[static_cast<std::size_t>(task_)];
      bool any = false;
      for (; next != queued.end() && next->task == task_; ++next, any = true) add_work(each, *next);
      const double seconds = any ? 0 : compute_seconds(cluster_, each.work, record_.compute);
      if (seconds > 0) add_compute(name_of(each.task), seconds, {});
    }
    require(next == queued.end(), "plan: the recorded tasks are not those of the recorded schedule");
  }
  void add_work(const RecordedTask& each, const sharding::QueuedWork& work) {
    const std::string name = name_of(each.task);
    std::vector<int> after;
    for (std::size_t queue = 0; queue < Queues::queues; ++queue)
      if (queue != work.queue && work.over[queue] > 0)
        after.push_back(works_of_queue_[queue][static_cast<std::size_t>(work.over[queue]) - 1]);
    const double seconds = compute_seconds(cluster_, each.work, record_.compute);
    if (work.queue == Queues::compute) {
      add_compute(name, seconds, std::move(after));
    } else {
      if (seconds > 0) {  // fills the reduction's input, on the device's queue
        add_compute(name, seconds, {});
        after.push_back(last());
      }
      if (each.work.host_bytes > 0) add_copy(name, each.work.host_bytes, after);
      for (const RecordedCollective& collective : each.work.collectives) add_collective(name, collective, after);
      if (each.work.host_bytes == 0 && each.work.collectives.empty()) add_nothing(name, work.queue, after);
    }
    works_of_queue_[work.queue].push_back(last());
  }
  /// Adds an operation without a transfer, for one rank: it preserves the order of events.
  void add_nothing(const std::string& name, Queues::Kind queue, std::vector<int> after) {
    const Track track = queue == Queues::host       ? Track::host
                        : queue == Queues::across   ? Track::across
                        : queue == Queues::sequence ? Track::sequence
                                                    : Track::world;
    push({.kind = queue == Queues::host ? WorkKind::copy : WorkKind::collective, .name = name}, track,
         std::move(after));
  }

  /// Adds the optimizer after all other operations: the collectives of its norm, then its update.
  void add_optimizer() {
    std::array<int, track_count> ends{};
    ends.fill(-1);
    for (int i = 0; i <= last(); ++i)
      ends[static_cast<std::size_t>(works_[static_cast<std::size_t>(i)].work.track)] = i;
    std::vector<int> all;
    for (const int end : ends)
      if (end >= 0) all.push_back(end);
    for (const RecordedCollective& collective : record_.optimizer.collectives) {
      add_collective("optimizer", collective, all);
      all = {last()};
    }
    const double seconds = compute_seconds(cluster_, record_.optimizer, record_.compute);
    if (!record_.optimizer_in_host_memory || !cluster_.collectives_have_queues)
      return add_compute("optimizer", seconds, all);
    // Kernels access main weights and states over the host's link, half of the bytes in each direction.
    add_copy("optimizer", record_.optimizer.counters.elementwise_bytes / 2, all);
  }

  const Cluster& cluster_;
  const StepRecord& record_;
  int task_ = -1;  ///< task whose operations are being added; -1: none
  std::vector<NamedWork> works_;
  std::array<std::vector<int>, Queues::queues> works_of_queue_;  ///< indices into works_
};

}  // namespace

std::vector<Span> spans_of(std::span<const Work> works) { return Clock(works).run(); }

std::string_view name_of(Track track) {
  constexpr std::array<std::string_view, track_count> names = {"compute", "world",    "across",
                                                               "shard",   "sequence", "host"};
  return name_from(names, track);
}

double compute_seconds(const Cluster& cluster, const RecordedWork& work, DType compute) {
  double seconds = work.stated_seconds;
  const std::int64_t own = work.counters.own_attention_flops;
  std::int64_t listed = 0;
  for (const CountedMatmul& each : work.matmuls) {
    seconds += static_cast<double>(each.count) * matmul_seconds(cluster, each.matmul);
    listed += each.count * 2 * each.matmul.m * each.matmul.n * each.matmul.k;
  }
  return seconds + static_cast<double>(work.counters.matmul_flops - listed) / cluster.matmul(compute) +
         static_cast<double>(work.counters.attention_flops - own) / cluster.attention_rate(compute) +
         static_cast<double>(own) / cluster.attention_rate(compute, true) +
         static_cast<double>(work.counters.elementwise_bytes) / cluster.memory_bandwidth;
}

std::vector<NamedWork> works_of(const Cluster& cluster, const StepRecord& record) {
  return StepWorks(cluster, record).run();
}

}  // namespace fsdp::plan
