// SPDX-License-Identifier: Apache-2.0
// A Sharded that is saved by 2 ranks and resumed by 3 ranks under another strategy has the weights of an uninterrupted
// run. usage: checkpointed FOLDER
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/checkpoint/sharded.hpp>
#include <tessera/fsdp/sharded.hpp>

namespace {

using Ranks = fsdp::comm::Threads<>;
using Weights = std::map<std::string, std::vector<float>>;
template <class Strategy>
using Sharded = fsdp::Sharded<fsdp::Stack<Strategy, Ranks, fsdp::Fp32>>;

const std::vector<fsdp::Unit> units = {{"first", {{.name = "w", .shape = {5, 3}}, {.name = "b", .shape = {5}}}},
                                       {"second", {{.name = "v", .shape = {7, 5}}}}};
const std::vector<std::vector<std::string>> names = {{"w", "b"}, {"v"}};

/// A step whose gradients are the weights themselves; every rank contributes an equal part.
template <class SharedT>
void step(SharedT& sharded, int ranks) {
  auto pass = sharded.train();
  for (int unit = 0; unit < 2; ++unit) pass.forward(unit).done();
  for (int unit = 1; unit >= 0; --unit) {
    const auto use = pass.backward(unit);
    for (const std::string& name : names[static_cast<std::size_t>(unit)]) {
      const auto weight = use.weight(name);
      const auto gradient = use.gradient(name);
      gradient.next();  // the gradient was not written before
      std::transform(weight.data(), weight.data() + weight.numel(), gradient.tensor.data(),
                     [&](float value) { return value / static_cast<float>(ranks); });
    }
  }
  pass.finish();
  (void)sharded.step(0, {.lr = 0.0625});
}

/// Trains from the checkpoint `from`, or from initial values if it is empty; then saves to the folder `to` unless it is
/// empty.
template <class Strategy>
Weights trained(int ranks, int steps, const std::filesystem::path& from, const std::filesystem::path& to,
                std::string& value) {
  Weights weights;
  const int status = Ranks::run(ranks, {}, [&](Ranks& communicator) {
    Sharded<Strategy> sharded(communicator, units);
    sharded.initialize(1);
    fsdp::checkpoint::HostValues values = {{"position", "none"}};
    if (!from.empty()) values = fsdp::checkpoint::restore(sharded, from);
    for (int i = 0; i < steps; ++i) step(sharded, ranks);
    if (!to.empty()) (void)fsdp::checkpoint::save(sharded, to, {{"position", "of my data"}});
    sharded.with_full({"*"}, [&](const fsdp::Parameter& parameter, fsdp::Tensor<const float> full) {
      if (communicator.rank() == 0) weights[parameter.name].assign(full.data(), full.data() + full.numel());
    });
    if (communicator.rank() == 0) value = values.at("position");
    return 0;
  });
  return status == 0 ? weights : Weights();
}

bool near(const Weights& a, const Weights& b) {
  if (a.size() != 3 || b.size() != 3) return false;
  for (const auto& [name, values] : a)
    if (!std::equal(values.begin(), values.end(), b.at(name).begin(), b.at(name).end(),
                    [](float x, float y) { return std::abs(x - y) <= 1e-5f * std::max(std::abs(x), 1e-3f); }))
      return false;
  return true;
}

}  // namespace

int main(int, char** arguments) {
  const std::filesystem::path folder = arguments[1];
  std::string value;
  const Weights straight = trained<fsdp::FullyShard<>>(1, 4, {}, {}, value);
  const Weights saved = trained<fsdp::FullyShard<>>(2, 2, {}, folder, value);
  const Weights same = trained<fsdp::Zero1>(1, 0, folder, {}, value);
  const Weights resumed = trained<fsdp::Zero3>(3, 2, folder, {}, value);
  const bool good = same == saved && value == "of my data" && near(resumed, straight) && !near(saved, straight);
  std::printf("resumed from %s: %s\n", folder.c_str(), good ? "as if it had not stopped" : "something else");
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
