// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a tiled module lacks tiling::Problem problem(std::int64_t tokens) const, the sizes that tilings plan
// expect 2: fsdp: a tiled module is run alone to plan its tiles, and this one has neither forward and backward
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/nn/plan_of.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp::nn {

using Here = Local<device::Meta, Fp32>;

struct WithoutProblem : SwiGluMlp<Here> {
  void problem() const;
};
struct WithoutBackward : SwiGluMlp<Here> {
  void backward() const;
};

template <class M>
const tiling::TilePlan& use(Context<Here>& context) {
  return plan_of(context, M{});
}

#if CASE == 0
template const tiling::TilePlan& use<SwiGluMlp<Here>>(Context<Here>&);
#elif CASE == 1
template const tiling::TilePlan& use<WithoutProblem>(Context<Here>&);
#elif CASE == 2
template const tiling::TilePlan& use<WithoutBackward>(Context<Here>&);
#endif

}  // namespace fsdp::nn
