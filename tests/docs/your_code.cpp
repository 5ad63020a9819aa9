// SPDX-License-Identifier: Apache-2.0
// The code on the pages about user-defined loops, to check that it compiles and links only tessera::sharding and
// tessera::checkpoint.
// clang-format off
#include <filesystem>
#include <string>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/checkpoint/sharded.hpp>
#include <tessera/fsdp/sharded.hpp>

using Weight = fsdp::Tensor<const float>;
using Gradient = fsdp::GradientView<float>;

void encode(Weight, Weight) {}
void decode(Weight) {}
void decode_gradient(Weight, const Gradient&) {}
void encode_gradient(Weight, const Gradient&, const Gradient&) {}

using Shards = fsdp::Sharded<fsdp::Stack<fsdp::FullyShard<>, fsdp::comm::Threads<>, fsdp::Fp32>>;

void train(fsdp::comm::Threads<>& ranks, double loss) {
  Shards module(ranks, {{"encoder", {{"w", {64, 128}}, {"b", {64}}}}, {"decoder", {{"v", {128, 64}}}}});
  module.initialize(1);
  auto pass = module.train();
  { auto use = pass.forward(0); encode(use.weight("w"), use.weight("b")); }
  { auto use = pass.forward(1); decode(use.weight("v")); }
  { auto use = pass.backward(1); decode_gradient(use.weight("v"), use.gradient("v")); }
  { auto use = pass.backward(0); encode_gradient(use.weight("w"), use.gradient("w"), use.gradient("b")); }
  pass.finish();
  module.step(loss, {.lr = 1e-3});
}

using Rows = fsdp::Tensor<float>;
void write_or_add(const Gradient&, Rows, Rows) {}
void multiply(Rows, Weight, Rows) {}
std::string train_one_step(Shards&, const std::string& position) { return position; }

void linear_backward(Rows x, Rows dy, Weight w, const Gradient& dw, Rows dx) {
  if (dw.wanted()) write_or_add(dw, dy, x);
  multiply(dy, w, dx);
}

fsdp::Order without_first_backward(int units) {
  fsdp::Order order = fsdp::chain(units);
  order.list.pop_back();  // backward of unit 0
  return order;
}

template <class Pass, class EventLoop, class Compute>
void run(Pass& pass, EventLoop& events, const Compute& compute) {
  while (true) {
    while (!pass.poll()) events.run_one();
    if (!pass.next().has_value()) return pass.finish();
    auto use = pass.enter();
    compute(use);
  }
}

struct Events { void run_one() {} };

void train_with_checkpoints(Shards& module, const std::filesystem::path& dir, int steps) {
  namespace checkpoint = fsdp::checkpoint;
  std::string position = "0";
  if (std::filesystem::exists(dir))
    position = checkpoint::restore(module, dir).at("position");
  else
    module.initialize(1);
  while (module.optimizer().steps() < steps) {
    position = train_one_step(module, position);
    if (module.optimizer().steps() % 100 == 0) checkpoint::save(module, dir, {{"position", position}});
  }
}

void evaluate_in(Shards& module, Events& events) {
  auto pass = module.evaluate();
  run(pass, events, [](auto& use) { (void)use.weight(0); });
}

int main() {
  return fsdp::comm::Threads<>::run(2, {}, [](fsdp::comm::Threads<>& ranks) { return train(ranks, 0.0), 0; });
}
