// SPDX-License-Identifier: Apache-2.0
/// @file
/// `unet`: the network of examples/14_eigen_unet. On one rank, compares a step with a step of the loop without the
/// library; on two ranks, with half of that work and with the exchange alone.
#include <algorithm>
#include <vector>

#include "../../examples/14_eigen_unet/units.hpp"

#include "../lines.hpp"
#include "bare_loop.hpp"
#include "foreign.hpp"

namespace fsdp::bench::foreign {
namespace {

constexpr double lr = 1e-6, clip = 1;  // so small that values, and hence times, hardly change over a thousand steps
const optim::AdamW rule{.weight_decay = 0.01};

/// Repeated steps of both loops on a rank's part of the same batch.
class Steps {
 public:
  Steps(Comm& communicator, std::int64_t pictures)
      : count_(static_cast<int>(pictures) / communicator.size()),
        share_(1.0 / static_cast<double>(pictures * unet::size * unet::size)),
        data_(count_, 0, communicator.rank() * count_),
        sharded_(communicator, unet::sharded_units(), {},
                 {.orders = {unet::order()}, .optimizer = rule, .rules = {.clip = clip}}),
        bare_(unet::sharded_units(), rule, clip) {
    sharded_.initialize(1);
    const std::vector<Unit> units = unet::sharded_units();
    sharded_.with_full({"*"}, [&](const Parameter& parameter, Tensor<const float> values) {
      for (std::size_t unit = 0; unit < units.size(); ++unit)
        for (std::size_t i = 0; i < units[unit].parameters.size(); ++i)
          if (units[unit].parameters[i].name == parameter.name)
            std::copy_n(values.data(), values.numel(), bare_.weight(static_cast<int>(unit), i).data());
    });
  }

  void sharded() {
    auto pass = sharded_.train();
    const double loss = unet::train(pass, data_, share_);
    pass.finish();
    loss_ = sharded_.step(loss * share_, {.lr = lr}).loss;
  }
  /// Runs the loop without the library, on this rank's part only.
  void bare() {
    bare_loss_ = unet::train(bare_, data_, share_) * share_;
    bare_.step(lr);
  }
  double loss() const { return loss_; }
  double bare_loss() const { return bare_loss_; }

 private:
  int count_;  // number of images on this rank
  double share_;
  unet::Pictures<float> data_;
  Shards sharded_;
  BareLoop bare_;
  double loss_ = 0, bare_loss_ = 0;
};

void measure(Comm& communicator, std::int64_t pictures, std::int64_t repeats) {
  Steps steps(communicator, pictures);
  Rounds rounds;
  add_short(rounds, [&] { steps.sharded(); });
  add_short(rounds, [&] { steps.bare(); });
  if (communicator.size() == 1) {
    run_together(communicator, rounds, repeats);
    Line("unet")
        .add("ranks", std::int64_t{1}, "pictures", pictures, "step_us", rounds.median_seconds(0) * 1e6)
        .add("bare_loop_us", rounds.median_seconds(1) * 1e6)
        .add("ratio_to_bare_loop", rounds.median_ratio(0, 1))
        .add("loss", steps.loss(), "bare_loop_loss", steps.bare_loss())
        .print();
    return;
  }
  Exchange exchange(communicator, [&] { steps.sharded(); });
  add_short(rounds, [&] { exchange.run(); });
  run_together(communicator, rounds, repeats);
  if (communicator.rank() != 0) return;
  const auto floor = [&](std::size_t r) { return rounds.seconds(1, r) + rounds.seconds(2, r); };
  Line("unet")
      .add("ranks", std::int64_t{communicator.size()}, "pictures", pictures)
      .add("step_us", rounds.median_seconds(0) * 1e6, "bare_loop_us", rounds.median_seconds(1) * 1e6)
      .add("exchange_us", rounds.median_seconds(2) * 1e6, "exchange_bytes", exchange.bytes())
      .add("ratio", rounds.median_of([&](std::size_t r) { return rounds.seconds(0, r) / floor(r); }))
      .add("loss", steps.loss())
      .print();
}

}  // namespace

void measure_unet(const Options& options) {
  require<InputError>(options.pictures % 2 == 0, "--pictures is ", options.pictures, "; two ranks share them evenly");
  for (const int ranks : {1, 2})
    on_ranks(ranks, [&](Comm& communicator) { measure(communicator, options.pictures, options.repeats_or(301)); });
}

}  // namespace fsdp::bench::foreign
