// SPDX-License-Identifier: Apache-2.0
// The two halves of GPT-2's block pass the module suite of the test kit.
#include <examples/13_gpt2/attention.hpp>
#include <examples/13_gpt2/mlp.hpp>
#include <tessera/fsdp/testing/module.hpp>

namespace fsdp::testing {
namespace {

struct Gpt2Mlp {
  template <class L>
  static gpt2::Mlp<L> make(const ModuleSizes& sizes) {
    return {{}, sizes.hidden, 4 * sizes.hidden, 1e-2f};
  }
};
struct Gpt2Attention {
  template <class L>
  static gpt2::Attention<L> make(const ModuleSizes& sizes) {
    return {{}, sizes.hidden, 2, 1e-2f};
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Gpt2Mlp, ModuleSuite, Gpt2Mlp);
INSTANTIATE_TYPED_TEST_SUITE_P(Gpt2Attention, ModuleSuite, Gpt2Attention);

}  // namespace
}  // namespace fsdp::testing
