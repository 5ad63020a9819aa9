// SPDX-License-Identifier: Apache-2.0
/// @file
/// A type-erased pass of any stack, so that a network is compiled only once; with callbacks before and inside
/// computations.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::foreign {

/// A type-erased use.
class HeldUse {
 public:
  virtual ~HeldUse() = default;
  virtual Tensor<const float> weight(std::size_t index) = 0;
  virtual GradientView<float> gradient(std::size_t index) = 0;
  virtual void done() = 0;
};

/// A use of type U. Weights in bf16 are copied to float.
template <class U>
class HeldUseOf : public HeldUse {
 public:
  template <class Enter>
  explicit HeldUseOf(const Enter& enter) : use_(enter()) {}
  ~HeldUseOf() noexcept override = default;  // AnyUse has already ended it, or an exception is unwinding

  Tensor<const float> weight(std::size_t index) override {
    const auto view = use_.weight(index);
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(view[0])>, float>) {
      return view;
    } else {
      const std::vector<float>& copy = copies_.emplace_back(view.data(), view.data() + view.numel());
      return {copy.data(), view.shape()};
    }
  }
  GradientView<float> gradient(std::size_t index) override { return use_.gradient(index); }
  void done() override { use_.done(); }

 private:
  U use_;
  std::vector<std::vector<float>> copies_;
};

/// Ends the computation in its destructor, like a Use.
class AnyUse {
 public:
  AnyUse(std::unique_ptr<HeldUse> held) : held_(std::move(held)), thrown_(std::uncaught_exceptions()) {}
  AnyUse(AnyUse&&) = default;
  ~AnyUse() noexcept(false) {
    if (held_ != nullptr && std::uncaught_exceptions() == thrown_) held_->done();
  }
  Tensor<const float> weight(std::size_t index) const { return held_->weight(index); }
  GradientView<float> gradient(std::size_t index) const { return held_->gradient(index); }

 private:
  std::unique_ptr<HeldUse> held_;
  int thrown_;
};

struct AnyPass {
  std::function<std::unique_ptr<HeldUse>(sharding::Action, int unit)> enter;
  std::function<void()> before = [] {};  ///< called before each computation
  std::function<void()> inside = [] {};  ///< called at the beginning of each computation

  AnyUse forward(int unit) { return begin(sharding::Action::forward, unit); }
  AnyUse backward(int unit) { return begin(sharding::Action::backward, unit); }
  AnyUse both(int unit) { return begin(sharding::Action::loss, unit); }

 private:
  AnyUse begin(sharding::Action action, int unit) {
    before();
    AnyUse use = enter(action, unit);
    inside();
    return use;
  }
};

/// `pass` must outlive the result. `Held<U>`, where U is the pass's Use type, adapts the views.
template <template <class> class Held = HeldUseOf, class P>
AnyPass any_pass(P& pass) {
  using U = decltype(pass.forward(0));
  return {.enter = [&pass](sharding::Action action, int unit) -> std::unique_ptr<HeldUse> {
    return std::make_unique<Held<U>>([&]() -> U {
      switch (action) {
        case sharding::Action::forward: return pass.forward(unit);
        case sharding::Action::backward: return pass.backward(unit);
        default: return pass.both(unit);
      }
    });
  }};
}

}  // namespace fsdp::foreign
