// SPDX-License-Identifier: Apache-2.0
// Training on an asynchronous device. The computations of a user-defined network are operations of the library's queue
// or of a queue of the host program. Results are bit-identical to the plain loop, all accesses are ordered, no event is
// redundant, and a pass and its step can be one graph.
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

#include <support/errors.hpp>
#include <support/nccl/queued.hpp>
#include "kernels.hpp"
#include "runs.hpp"

namespace fsdp::foreign {
namespace {

using testing::Access;
using testing::QueuedCpu;
using Queue = QueuedCpu::Queue;
using Threads = comm::Threads<QueuedCpu>;
using Nccl = testing::QueuedNccl;

/// How the computations are enqueued.
struct Asynchronous {
  Request request;
  bool own_queue = false;  ///< computations run on a queue of the host program
  bool told = true;        ///< the pass is informed of this queue
  bool graph = false;      ///< the second step's pass and update are captured, and launched in each later step
  bool check_only = false;
  std::vector<std::int64_t> leave_out = {};  ///< events of rank 0 to omit
  bool clears = false;                       ///< gradients are cleared before they are written
  int stops_at = -1;      ///< the computation of the second step after which its pass is given up; -1: none
  bool forfeits = false;  ///< true: rank 0 forfeits; false: all ranks throw and repeat the pass
};

/// Thrown by tests.
struct GivenUp {};

/// The outcome of a run, its races, and the points of the second step at which queues of rank 0 wait.
struct Found {
  Outcome outcome;
  std::vector<std::string> races;
  testing::EventPoints points;
};

/// Enqueues the next computation of a network.
template <class AnyPassOf>
void enqueue_next(AnyPassOf& pass, const Network& network, Queue& queue, Kernels& kernels, bool clears = false) {
  const auto use = pass.enter();
  const sharding::Task& task = use.task();
  const Unit& unit = network.units[static_cast<std::size_t>(task.index)];
  Operands operands{.task = task};
  std::vector<Access> accesses;
  for (std::size_t tensor = 0; tensor < unit.parameters.size(); ++tensor) {
    if (task.action != sharding::Action::backward || unit.backward_needs_weights)
      testing::list_access(accesses, operands.weights.emplace_back(use.weight(tensor)));
    if (task.action == sharding::Action::forward) continue;
    if (clears) use.zeroed(tensor);
    const auto gradient = use.gradient(tensor);
    testing::list_access(accesses, operands.gradients.emplace_back(gradient.tensor));
    operands.adds.push_back(gradient.wanted() && gradient.next() == Write::accumulate);
  }
  queue.submit(unit.name.c_str(), accesses, [&kernels, operands](auto&) { kernels.compute(operands); });
}

/// Enqueues the sum of the losses of micro-batches 0 to m.
void enqueue_loss(const Tensor<double>& loss, int m, Queue& queue, Kernels& kernels) {
  const Access write{.begin = loss.data(), .bytes = sizeof(double), .writes = true};
  queue.submit("loss", std::span(&write, 1), [&kernels, loss, m](auto&) {
    const double own_loss = kernels.loss();
    loss.data()[0] = m == 0 ? own_loss : loss.data()[0] + own_loss;
  });
}

/// Enqueues a pass of a network.
template <class AnySharded>
void enqueue_pass(AnySharded& sharded, const Network& network, int stops_at, Kernels& kernels, Queue* own,
                  const Asynchronous& how) {
  const int micro_batches = how.request.micro_batches.front();
  auto pass = sharded.train(micro_batches);
  if (own != nullptr && how.told) pass.compute_on(*own);
  Queue& queue = own != nullptr ? *own : sharded.stream();
  for (int m = 0; m < micro_batches; ++m) {
    for (std::size_t i = 0; i < network.order.list.size(); ++i) {
      enqueue_next(pass, network, queue, kernels, how.clears);
      if (stops_at-- != 0) continue;
      if (!how.forfeits) throw GivenUp();
      if (sharded.module().communicator().rank() == 0) return pass.forfeit();
    }
    enqueue_loss(sharded.loss(), m, queue, kernels);
  }
  pass.finish();
}

/// Trains on one rank, with the host one step ahead of the device.
template <class AnySharded>
Outcome steps_of(AnySharded& sharded, const Network& network, const Asynchronous& how) {
  const auto& communicator = sharded.module().communicator();
  const int count = how.request.micro_batches.front();
  Kernels kernels(network, communicator.rank(), communicator.size(), count);
  Queue own("own");
  Outcome outcome;
  const auto read = [&](int behind) {
    outcome.losses.push_back(sharded.result(behind).loss);
    outcome.norms.push_back(sharded.result(behind).norm);
  };
  QueuedCpu::Graph graph;
  const auto enqueue = [&](int stops_at = -1) {
    enqueue_pass(sharded, network, stops_at, kernels, how.own_queue ? &own : nullptr, how);
  };
  for (int step = 0; step < std::ssize(how.request.micro_batches); ++step) {
    if (step == 1) Queue::forget_points();
    if (how.graph && step > 0) {
      sharded.begin_step({.lr = lr_of(step)});
      if (step == 1)
        graph = QueuedCpu::capture(sharded.stream(), [&] {
          enqueue();
          sharded.update();
        });
      graph.launch(sharded.stream());
      sharded.end_step();
    } else {
      try {
        enqueue(step == 1 ? how.stops_at : -1);
      } catch (const GivenUp&) {
        enqueue();
      }
      sharded.queue_step({.lr = lr_of(step)});
    }
    if (step > 0) read(1);
  }
  read(0);
  sharded.stream().synchronize();
  own.synchronize();
  if (!how.check_only) outcome.weights = whole_weights(sharded);
  return outcome;
}

template <class AnyComm, class Strategy>
Found train_by(const Network& network, const Strategy& strategy, const Asynchronous& how) {
  Found found;
  Queue::check_only(how.check_only);
  QueuedCpu::take_races();
  const comm::Options options{.deadline = std::chrono::seconds(20),
                              .before = how.check_only ? decltype(comm::Options::before){}
                                                       : comm::random_delays(2, std::chrono::microseconds(200))};
  AnyComm::run(how.request.ranks, options, [&](AnyComm& communicator) {
    Queue::leave_out(communicator.rank() == 0 ? how.leave_out : std::vector<std::int64_t>{});
    Sharded<Stack<Strategy, AnyComm, Fp32>> sharded(
        communicator, network.units, strategy,
        settings_for(network, how.request.micro_batches.front(), how.request.clip));
    sharded.initialize(seed);
    const Outcome outcome = steps_of(sharded, network, how);
    PlannedBytes planned = sharded.planned();
    planned.bytes[static_cast<std::size_t>(device::MemoryKind::scratch)] -= planned.arena;  // queues have own arenas
    testing::expect_planned_bytes(network.name, static_cast<std::size_t>(communicator.rank()), sharded.held().bytes,
                                  planned.bytes);
    if (communicator.rank() != 0) return;
    found.outcome = outcome;
    found.points = Queue::points();
  });
  found.races = QueuedCpu::take_races();
  Queue::check_only(false);
  return found;
}

template <class AnyComm>
Found train(const Network& network, const AnyStrategy& any, const Asynchronous& how) {
  return train_by<AnyComm>(network, std::get<RunTimeAny>(any), how);
}

using Names = std::vector<std::string>;

/// Four ranks form groups of two.
std::vector<Case> cases_of(int ranks) {
  std::vector<Case> cases = ranks == 4 ? cases_of_two_axes() : cases_of_one_axis();
  std::erase_if(cases, [](const Case& how) { return !std::holds_alternative<RunTimeAny>(how.strategy); });
  return cases;
}
std::vector<int> numbers_of_ranks() { return sweeps_whole() ? std::vector{1, 2, 3, 4} : std::vector{3, 4}; }

template <class AnyComm>
void expect_parity(const Network& network, Asynchronous how) {
  with_expected(network, how.request, cases_of(how.request.ranks),
                [&](const Request& request, const Outcome& expected) {
                  how.request = request;
                  SCOPED_TRACE(message(network.name, ", ", text_of(request.strategy), ", ", request.ranks, " ranks, ",
                                       request.micro_batches.front(), " micro-batches",
                                       how.own_queue ? ", on a queue of its own" : ""));
                  const Found found = train<AnyComm>(network, request.strategy, how);
                  EXPECT_EQ(found.races, Names{});
                  expect_same(found.outcome, expected);
                  expect_clipping(found.outcome, request.clip);
                });
}

TEST(QueuedForeignLoop, IsBitIdenticalToThePlainLoopAndFreeOfRaces) {
  for (const Network& network : networks())
    for (const bool own_queue : {false, true})
      for (const int ranks : numbers_of_ranks())
        for (const int count : sweeps_whole() ? std::vector{1, 2, 3} : std::vector{2})
          expect_parity<Threads>(
              network, {.request = {.ranks = ranks, .micro_batches = std::vector(4, count)}, .own_queue = own_queue});
}

TEST(QueuedForeignLoop, OmittingAnyEventCausesARace) {
  for (const Network& network : networks())
    for (const bool own_queue : {false, true})
      for (const int ranks : {3, 4})
        for (const Case& one : cases_of(ranks)) {
          if (own_queue && ranks == 4) continue;  // compute_on uses two events per use, also if weights stay gathered
          SCOPED_TRACE(message(network.name, ", ", text_of(one.strategy), own_queue ? ", on a queue of its own" : ""));
          Asynchronous how{
              .request = {.ranks = ranks, .micro_batches = {2, 2}}, .own_queue = own_queue, .check_only = true};
          const Found whole = train<Threads>(network, one.strategy, how);
          EXPECT_EQ(whole.races, Names{});
          EXPECT_GT(whole.points.size(), 6u);
          for (const auto& point : whole.points) {
            how.leave_out = point;
            EXPECT_NE(train<Threads>(network, one.strategy, how).races, Names{})
                << "event " << point.front() << " is not needed";
          }
        }
}

TEST(QueuedForeignLoop, AUserQueueUnknownToThePassCausesARace) {
  for (const Network& network : networks()) {
    const Asynchronous how{
        .request = {.ranks = 2, .micro_batches = {1, 1}}, .own_queue = true, .told = false, .check_only = true};
    const Names races = train<Threads>(network, RunTimeAny{FullyShard<>{}}, how).races;
    ASSERT_NE(races, Names{}) << network.name;
    test::expect_parts(races.front(), {"no event orders them"});
  }
}

TEST(QueuedForeignLoop, AUserQueueIsOrderedWithClearedGradientsAndForfeits) {
  std::vector<Case> cases = cases_of(3);
  if (!sweeps_whole()) cases.resize(2);
  for (const Network& network : networks())
    for (const Case& one : cases)
      for (int at = -1; at < 2 * std::ssize(network.order.list); ++at)
        for (const bool forfeits : {false, true}) {
          if (at < 0 && forfeits) continue;  // no pass is given up
          SCOPED_TRACE(message(network.name, ", ", text_of(one.strategy), ", ", forfeits ? "forfeited" : "thrown",
                               " behind computation ", at));
          EXPECT_EQ(train<Threads>(network, one.strategy,
                                   {.request = {.ranks = 3, .micro_batches = {2, 2, 2}},
                                    .own_queue = true,
                                    .check_only = true,
                                    .clears = at < 0,
                                    .stops_at = at,
                                    .forfeits = forfeits})
                        .races,
                    Names{});
        }
}

TEST(QueuedForeignLoop, MisuseOfQueuesAndPassesIsAnError) {
  const Network network = tied_network();
  Queue::check_only(true);
  Threads::run(1, {}, [&](Threads& communicator) {
    Sharded<Stack<RunTimeAny, Threads, Fp32>> sharded(communicator, network.units, {}, settings_for(network, 1));
    sharded.initialize(seed);
    Queue own("own");
    EXPECT_THROW(sharded.update(), LogicError) << "no pass was made";
    EXPECT_THROW(sharded.begin_step({.lr = std::nan("")}), InputError);
    auto pass = sharded.train();
    {
      const auto use = pass.enter();
      EXPECT_THROW(pass.compute_on(own), LogicError) << "inside of a use";
    }
    pass.forfeit();
    EXPECT_THROW(pass.compute_on(own), LogicError) << "the pass is over";
  });
  Queue::check_only(false);
}

/// Two objects on one communicator, each with its own stream. Their computations alternate.
template <class AnyComm>
void expect_two_objects_in_turn() {
  const std::vector<Network> both = networks();
  const RunTimeAny strategy{FullyShard<>{}};
  const Request request{.ranks = 3, .micro_batches = {1, 1, 1}};
  std::array<Outcome, 2> found;
  QueuedCpu::take_races();
  AnyComm::run(request.ranks, {.before = comm::random_delays(3, std::chrono::microseconds(200))},
               [&](AnyComm& communicator) {
                 using Object = Sharded<Stack<RunTimeAny, AnyComm, Fp32>>;
                 std::array<std::optional<Object>, 2> objects;
                 std::array<std::optional<Kernels>, 2> kernels;
                 std::array<Outcome, 2> own;
                 for (std::size_t i : {0, 1}) {
                   objects[i].emplace(communicator, both[i].units, strategy, settings_for(both[i], 1));
                   objects[i]->initialize(seed);
                   kernels[i].emplace(both[i], communicator.rank(), request.ranks, 1);
                 }
                 for (int step = 0; step < std::ssize(request.micro_batches); ++step) {
                   std::array passes{objects[0]->train(), objects[1]->train()};
                   while (passes[0].next() || passes[1].next())
                     for (std::size_t i : {0, 1})
                       if (passes[i].next()) enqueue_next(passes[i], both[i], objects[i]->stream(), *kernels[i]);
                   for (std::size_t i : {1, 0}) {
                     enqueue_loss(objects[i]->loss(), 0, objects[i]->stream(), *kernels[i]);
                     passes[i].finish();
                     objects[i]->queue_step({.lr = lr_of(step)});
                   }
                   for (std::size_t i : {0, 1}) own[i].losses.push_back(objects[i]->result().loss);
                 }
                 for (std::size_t i : {0, 1}) own[i].weights = whole_weights(*objects[i]);
                 if (communicator.rank() == 0) found = own;
               });
  EXPECT_EQ(QueuedCpu::take_races(), Names{});
  for (std::size_t i : {0, 1})
    expect_same(found[i], train_by<AnyComm>(both[i], strategy, {.request = request}).outcome);
}

TEST(SeveralQueuedObjects, AreBitIdenticalToEachObjectAlone) {
  expect_two_objects_in_turn<Threads>();
  expect_two_objects_in_turn<Nccl>();
}

TEST(GraphOfAForeignLoop, IsBitIdenticalToThePlainLoopIfNcclAddsInRankOrder) {
  const testing::NcclSums sums(testing::NcclSums::in_rank_order);
  for (const Network& network : networks())
    for (const bool own_queue : {false, true})
      for (const int ranks : numbers_of_ranks())
        expect_parity<Nccl>(
            network,
            {.request = {.ranks = ranks, .micro_batches = {1, 1, 1, 1}}, .own_queue = own_queue, .graph = true});
}

}  // namespace
}  // namespace fsdp::foreign
