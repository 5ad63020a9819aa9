// SPDX-License-Identifier: Apache-2.0
// A table whose rows are sent on request is bit-identical to a gathered table.
#include <tessera/fsdp/module/row_table.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include <support/nets.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

using Ids = std::vector<std::int64_t>;
constexpr std::int64_t table_rows = 7;

/// Unit 0 is the table; units 1 and 2 are the network.
std::vector<Unit> with_table(bool gathered, std::int64_t rows = table_rows) {
  std::vector<Unit> units = net::units(2);
  units.insert(units.begin(), {.name = "table",
                               .parameters = {{.name = "table",
                                               .shape = {rows, net::width},
                                               .initial = Initial::normal(0.5),
                                               .role = Role::table,
                                               .decays = true}},
                               .backward_needs_weights = false,
                               .gathered = gathered});
  return units;
}

/// The rows that a micro-batch looks up, without repetitions. Some rows are requested by several ranks.
Ids ids_of(const net::Place& place) {
  const std::int64_t first = 2 * place.rank + 3 * place.micro_batch + place.step;
  return {first % table_rows, (first + 5) % table_rows, (first + 2) % table_rows};
}

/// How a pass reads rows and adds their gradients.
template <class SharedT>
struct SentRows {
  using Stack = typename SharedT::Stack;
  using Compute = typename Stack::Precision::Compute;

  RowTable<Stack> table;
  explicit SentRows(SharedT& sharded) : table(sharded.module(), "table") {}

  template <class PassT>
  net::Values rows(PassT&, const Ids& ids) {
    std::vector<Compute> found(ids.size() * static_cast<std::size_t>(net::width));
    table.lookup(ids, {found.data(), {std::ssize(ids), net::width}});
    return net::Values(found.begin(), found.end());
  }
  template <class PassT>
  void add(PassT&, const Ids& ids, const net::Values& gradient) {
    table.add_gradient(ids, {gradient.data(), {std::ssize(ids), net::width}});
  }
};
template <class SharedT>
struct GatheredRows {
  explicit GatheredRows(SharedT&) {}

  template <class PassT>
  net::Values rows(PassT& pass, const Ids& ids) {
    auto use = pass.forward(0);
    net::Values found;
    for (const std::int64_t id : ids) {
      const auto* const row = use.weight(0).data() + id * net::width;
      found.insert(found.end(), row, row + net::width);
    }
    return found;
  }
  template <class PassT>
  void add(PassT& pass, const Ids& ids, const net::Values& gradient) {
    auto use = pass.backward(0);
    net::Values whole(table_rows * net::width);
    for (auto from = gradient.begin(); const std::int64_t id : ids)
      for (float& sum : std::span(whole).subspan(static_cast<std::size_t>(id * net::width), net::width)) sum += *from++;
    net::write(use.gradient(0), whole);
  }
};

template <class Rows, class SharedT>
double train(SharedT& sharded, Rows& rows, int micro_batches, int step) {
  double loss = 0;
  auto pass = sharded.train(micro_batches);
  for (int m = 0; m < micro_batches; ++m) {
    const net::Place place{.rank = sharded.module().communicator().rank(), .micro_batch = m, .step = step};
    net::Walk walk{rows.rows(pass, ids_of(place))};
    for (const int unit : {1, 2}) walk.forward(pass.forward(unit));
    loss += net::error(walk.x, net::targets(place));
    for (const int unit : {2, 1}) walk.backward(pass.backward(unit));
    rows.add(pass, ids_of(place), walk.x);
  }
  pass.finish();
  return loss;
}

struct TableRun {
  std::vector<double> losses, norms;
  Whole weights;
};

template <template <class> class Rows, class Precision, class Sharding>
TableRun trained(int ranks, int micro_batches, const Sharding& strategy) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    using SharedT = Net<Sharding, Precision>;
    const bool gathered = std::is_same_v<Rows<SharedT>, GatheredRows<SharedT>>;
    SharedT sharded(communicator, with_table(gathered), strategy, {.micro_batches = micro_batches});
    sharded.initialize(1);
    Rows<SharedT> rows(sharded);
    TableRun mine;
    for (int step = 0; step < 4; ++step) {
      const auto decision = sharded.step(train(sharded, rows, micro_batches, step), {.lr = 1e-2});
      mine.losses.push_back(decision.loss);
      mine.norms.push_back(decision.norm);
    }
    EXPECT_EQ(sharded.held().bytes, sharded.planned().bytes);
    mine.weights = net::weights(sharded);
    return mine;
  });
}

/// The order of parameter groups differs, and so does the order in which squares are summed.
void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  for (auto at = found.begin(); const double value : expected) EXPECT_NEAR(*at++, value, relative * value);
}

template <class Precision, class Sharding>
void is_a_gathered_table(int ranks, const Sharding& strategy) {
  SCOPED_TRACE(message(policy_text(strategy), ", ", ranks, " ranks"));
  const auto sent = trained<SentRows, Precision>(ranks, 1, strategy);
  const auto gathered = trained<GatheredRows, Precision>(ranks, 1, strategy);
  EXPECT_EQ(sent.losses, gathered.losses);
  EXPECT_EQ(sent.weights, gathered.weights);
  expect_near(sent.norms, gathered.norms, 1e-12);
}

TEST(RowTable, IsBitIdenticalToAGatheredTable) {
  const RunTimeAny fsdp2{.strategy = FullyShard<>{}};
  for (const int ranks : {1, 2, 3}) is_a_gathered_table<Fp32>(ranks, fsdp2);
  is_a_gathered_table<Fp32>(3, RunTimeAny{.strategy = Zero3{}, .other_layout = buffer::Rows{}});
  is_a_gathered_table<Fp32>(2, Replicated{});
  is_a_gathered_table<Bf16Mixed>(3, fsdp2);
}

/// The gradients of a gathered table are summed over the ranks of a group before they are added to earlier sums; a row
/// table adds each row separately.
TEST(RowTable, MatchesAGatheredTableApproximatelyIfSumOrdersDiffer) {
  const auto follows = [](int ranks, const auto& strategy) {
    const auto sent = trained<SentRows, Fp32>(ranks, 2, strategy),
               gathered = trained<GatheredRows, Fp32>(ranks, 2, strategy);
    expect_near(sent.losses, gathered.losses, 1e-6);
    expect_near(sent.norms, gathered.norms, 1e-6);
  };
  follows(3, RunTimeAny{.strategy = FullyShard<>{}});
  follows(4, RunTimeAny{.strategy = HybridShard<RunTimeSharded>{.group = 2}});
  follows(4, RunTimeHybridFull{.group = 2});
}

TEST(RowTable, AccumulatesRepeatedRowsAndAcceptsNone) {
  on_ranks(2, [](Comm& communicator) {
    Initialized<RunTimeAny> sharded(communicator, with_table(false), {.strategy = FullyShard<>{}});
    RowTable<NetStack<RunTimeAny>> table(sharded.module(), "table");
    EXPECT_EQ(table.columns(), net::width);
    // Rank 0 requests one row twice, rank 1 requests no row.
    const Ids ids = communicator.rank() == 0 ? Ids{3, 6, 3} : Ids{};
    const std::int64_t count = std::ssize(ids);
    net::Values found(static_cast<std::size_t>(count * net::width)), ones(found.size(), 1.0f);
    for (int again = 0; again < 2; ++again) {
      auto pass = sharded.train();
      table.lookup(ids, {found.data(), {count, net::width}});
      table.add_gradient(ids, {ones.data(), {count, net::width}});
      pass.forfeit();
      sharded.step(0, {.lr = 0});
    }
    const net::Values whole = net::weights(sharded).at("table");
    for (auto row = found.begin(); const std::int64_t id : ids) {
      EXPECT_TRUE(std::equal(row, row + net::width, whole.begin() + id * net::width)) << id;
      row += net::width;
    }
    for (const auto& piece : sharded.shards()) {
      if (piece.parameter->name != "table") continue;
      for (std::int64_t i = 0; i < piece.main.numel(); ++i) {
        const std::int64_t row = (piece.begin + i) / net::width;
        EXPECT_EQ(piece.gradient.data()[i], row == 3 ? 2.0f : row == 6 ? 1.0f : 0.0f);
      }
    }
  });
}

TEST(RowTable, AnOutOfRangeRowIsRefusedOnAllRanks) {
  on_ranks(2, [](Comm& communicator) {
    Initialized<RunTimeAny> sharded(communicator, with_table(false), {.strategy = FullyShard<>{}});
    RowTable<NetStack<RunTimeAny>> table(sharded.module(), "table");
    net::Values found(net::width);
    for (const std::int64_t bad : {std::int64_t{-1}, table_rows}) {
      const Ids ids = {communicator.rank() == 1 ? bad : 0};
      EXPECT_INPUT_ERROR(table.lookup(ids, {found.data(), {1, net::width}}),
                         message("rank 1 asks for row ", bad, " of 'table', which has 7"));
    }
    EXPECT_THROW(table.lookup(Ids{0, 1}, {found.data(), {1, net::width}}), InputError);
    const Ids sound = {6};
    table.lookup(sound, {found.data(), {1, net::width}});  // the collectives of the ranks still match
    EXPECT_EQ(found[0], net::weights(sharded).at("table")[6 * net::width]);
  });
}

TEST(RowTable, RefusesCutRowsGatheredUnitsAndUnknownNames) {
  const auto refused = [](const RunTimeAny& strategy, bool gathered, const char* name, const char* words) {
    on_ranks(2, [&](Comm& communicator) {
      Net<RunTimeAny> sharded(communicator, with_table(gathered, 41), strategy);
      EXPECT_INPUT_ERROR(RowTable<NetStack<RunTimeAny>>(sharded.module(), name), words);
    });
  };
  refused({.strategy = Zero3{}}, false, "table", "the layout cuts rows of 'table'");
  refused({.strategy = FullyShard<>{}}, true, "table", "declare the unit with gathered = false");
  refused({.strategy = FullyShard<>{}}, false, "tabel", "tabel");
}

}  // namespace
}  // namespace fsdp::test
