// SPDX-License-Identifier: Apache-2.0
// What the page about code of one's own shows: it compiles, and links tessera::sharding alone.
// clang-format off
#include <tessera/comm/threads.hpp>
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

int main() {
  return fsdp::comm::Threads<>::run(2, {}, [](fsdp::comm::Threads<>& ranks) { return train(ranks, 0.0), 0; });
}
