// SPDX-License-Identifier: Apache-2.0
// 16: a recommender: a table whose rows are exchanged and never gathered, a small tower, and running statistics.
//
// Each rank looks up the rows for its batch, and adds their gradients on the ranks that store the rows. The tower is
// gathered as usual. The mean of the inputs is a statistic: it is not a parameter, each step averages it over ranks,
// and checkpoints contain it. Prints the falling loss, and the traffic of a step compared with the traffic of a
// gathered table.
//
// Try next: fsdp::Zero1 instead of FullyShard<>, whose layout splits rows and is rejected; or more ranks.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/row_table.hpp>
#include <tessera/fsdp/sharded.hpp>

using Comm = fsdp::comm::Threads<>;
using Stack = fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Fp32>;
using Sharded = fsdp::Sharded<Stack>;

constexpr std::int64_t items = 20000, width = 8, batch = 32;
constexpr int ranks = 3, steps = 200;

/// The items of a rank's batch, and whether each was liked: items with odd numbers were.
struct Batch {
  std::array<std::int64_t, batch> ids;

  Batch(int rank, int step) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int64_t>(
          (i * 97 + static_cast<std::size_t>(rank) * 31 + static_cast<std::size_t>(step % 8) * 7) % 60);
  }
  float liked(std::size_t i) const { return ids[i] % 2 == 1 ? 1.0f : 0.0f; }
};

/// Runs forward and backward of one batch: liked = sigmoid(w . (row - mean)). Returns the sum of losses.
double train(Sharded& sharded, fsdp::RowTable<Stack>& table, const Batch& data) {
  std::vector<float> rows(batch * width), gradients(batch * width);
  const fsdp::Tensor<float> looked_up(rows.data(), {batch, width}), back(gradients.data(), {batch, width});
  auto pass = sharded.train();
  table.lookup(data.ids, looked_up);
  const fsdp::Tensor<float> mean = sharded.statistic("mean");
  double loss = 0;
  {
    auto use = pass.both(0);
    const auto weight = use.weight("w");
    const auto gradient = use.zeroed("w");
    for (std::int64_t i = 0; i < batch; ++i) {
      float score = 0;
      for (std::int64_t k = 0; k < width; ++k) score += weight[k] * (looked_up.row(i)[k] - mean[k]);
      const float p = 1 / (1 + std::exp(-score)), liked = data.liked(static_cast<std::size_t>(i));
      loss -= std::log(static_cast<double>(liked > 0 ? p : 1 - p));
      const float dscore = (p - liked) / (batch * ranks);
      for (std::int64_t k = 0; k < width; ++k) {
        gradient[k] += dscore * (looked_up.row(i)[k] - mean[k]);
        back.row(i)[k] = dscore * weight[k];
      }
    }
  }
  table.add_gradient(data.ids, back);
  pass.finish();
  for (std::int64_t k = 0; k < width; ++k) {  // statistics of this rank's batch: the step averages them over ranks
    float sum = 0;
    for (std::int64_t i = 0; i < batch; ++i) sum += looked_up.row(i)[k];
    mean[k] = 0.9f * mean[k] + 0.1f * sum / batch;
  }
  return loss;
}

int main() {
  const std::vector<fsdp::Unit> units{
      {.name = "tower", .parameters = {{"w", {width}, fsdp::Initial::normal(0.5)}}},
      {.name = "items",
       .parameters = {{"table", {items, width}, fsdp::Initial::normal(0.1), fsdp::Role::table, false}},
       .gathered = false}};
  const Sharded::Settings settings{.orders = {{{{fsdp::sharding::Action::loss, 0}}}},
                                   .optimizer = {.weight_decay = 0},
                                   .statistics = {{.name = "mean", .shape = {width}}}};
  return Comm::run(ranks, {}, [&](Comm& communicator) {
    Sharded sharded(communicator, units, {}, settings);
    sharded.initialize(1);
    fsdp::RowTable<Stack> table(sharded.module(), "table");
    for (int step = 0; step <= steps; ++step) {
      const std::int64_t before = communicator.monitor().totals.copied_bytes;
      const double loss = train(sharded, table, Batch(communicator.rank(), step));
      const double mean = sharded.step(loss, {.lr = 0.02}).loss / (batch * ranks);
      const std::int64_t moved = communicator.monitor().totals.copied_bytes - before;
      if (communicator.rank() == 0 && step % 50 == 0)
        std::printf("step %3d  loss %.4f  moved %lld bytes; the table has %lld\n", step, mean,
                    static_cast<long long>(moved), static_cast<long long>(items * width * 4));
    }
    return 0;
  });
}
