// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a unit while the caller computes it. A pass creates it: tessera/fsdp/module/pass.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/module/pass_cursor.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

namespace fsdp {

template <class Stack>
class Pass;

/// A unit's tensors while the caller computes it. At most one Use of a pass is alive at a time. Its end (`done`, or the
/// destructor) starts the next tasks of the schedule (releases, reductions, the next gathers) and does not wait.
///
/// Views are contiguous, row-major, aligned to device::alignment (except in buffer::Rows without pieces), and valid
/// until the end of the Use; afterwards they are poisoned in debug builds and under AddressSanitizer. If the module has
/// fixed slots, a unit's views have the same addresses in each of its uses in a pass.
template <class Stack>
class [[nodiscard("a Use that is not named ends at once; write auto use = pass.forward(unit)")]] Use {
 public:
  using Compute = typename Stack::Precision::Compute;
  using Accumulate = typename Stack::Precision::Accumulate;

  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  /// Takes over the computation; the destructor of `other` then does not end it.
  Use(Use && other) noexcept : pass_(std::exchange(other.pass_, nullptr)), task_(other.task_), thrown_(other.thrown_) {}
  /// Ends the computation, unless the stack is being unwound by an exception.
  ~Use() noexcept(false) {
    if (std::uncaught_exceptions() == thrown_) done();
  }
  /// Ends the computation.
  void done() {
    if (Pass<Stack>* const pass = std::exchange(pass_, nullptr)) pass->computed();
  }

  /// A tensor by its index in Unit::parameters, or by name: a weight, or the gradient of one. A gradient's memory is
  /// not cleared; GradientView::next specifies whether to overwrite it or to accumulate. They throw LogicError after
  /// the end of the Use, for an unknown tensor, for a weight in a backward that was declared to need no weights, and
  /// for a gradient in a computation that computes none. The first request for a weight waits for the unit's gather.
  /// @{
  Tensor<const Compute> weight(std::size_t index) const& {
    check().weights();
    check().index(index);
    pass_->wait_for_weights();
    return pass_->tasks_.weight(task_.index, index);
  }
  Tensor<const Compute> weight(std::string_view name) const& { return weight(check().index_of(name)); }
  GradientView<Accumulate> gradient(std::size_t index) const& {
    check().gradients();
    check().index(index);
    return pass_->tasks_.gradient(task_.index, index, pass_->cursor_.writes(task_));
  }
  GradientView<Accumulate> gradient(std::string_view name) const& { return gradient(check().index_of(name)); }
  /// @}
  /// All weights or gradients, in the order of the unit's fields: written to a list of that length, or returned as a
  /// struct.
  /// @{
  void weights(std::span<Tensor<const Compute>> list) const& {
    check().weights();
    pass_->wait_for_weights();
    check().count(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = pass_->tasks_.weight(task_.index, i);
  }
  void gradients(std::span<GradientView<Accumulate>> list) const& {
    check().gradients();
    check().count(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      list[i] = pass_->tasks_.gradient(task_.index, i, pass_->cursor_.writes(task_));
  }
  template <template <class> class Fields>
  Fields<Tensor<const Compute>> weights() const& {
    std::array<Tensor<const Compute>, field_count<Fields, Tensor<const Compute>>> list;
    weights(list);
    return unflatten<Fields, Tensor<const Compute>>(list);
  }
  template <template <class> class Fields>
  Fields<GradientView<Accumulate>> gradients() const& {
    std::array<GradientView<Accumulate>, field_count<Fields, GradientView<Accumulate>>> list;
    gradients(list);
    return unflatten<Fields, GradientView<Accumulate>>(list);
  }
  /// @}
  /// Returns a gradient for code that only accumulates: it is zeroed before its first write.
  /// @{
  Tensor<Accumulate> zeroed(std::size_t index) const& {
    const GradientView<Accumulate> view = gradient(index);
    if (view.wanted() && view.next() == Write::overwrite) {
      device::enqueue(pass_->module_.stream(), device::Fill<Accumulate>{.y = view.tensor, .value = 0.0f});
      pass_->own_queue_follows();
    }
    return view.tensor;
  }
  Tensor<Accumulate> zeroed(std::string_view name) const& { return zeroed(check().index_of(name)); }
  /// @}
  /// On a temporary, which ends before its views are used, these calls do not compile.
  /// @{
  template <class Which>
  Tensor<const Compute> weight(const Which& which)&& {
    return named(*this).weight(which);
  }
  template <class Which>
  GradientView<Accumulate> gradient(const Which& which)&& {
    return named(*this).gradient(which);
  }
  template <class Which>
  Tensor<Accumulate> zeroed(const Which& which)&& {
    return named(*this).zeroed(which);
  }
  template <class List>
  void weights(const List& list)&& {
    named(*this).weights(list);
  }
  template <class List>
  void gradients(const List& list)&& {
    named(*this).gradients(list);
  }
  template <template <class> class Fields>
  Fields<Tensor<const Compute>> weights()&& {
    return named(*this).template weights<Fields>();
  }
  template <template <class> class Fields>
  Fields<GradientView<Accumulate>> gradients()&& {
    return named(*this).template gradients<Fields>();
  }
  /// @}

  /// Returns the computation: its action, unit and micro-batch.
  const sharding::Task& task() const { return task_; }

 private:
  friend class Pass<Stack>;
  template <class Temporary>
  static Temporary& named(Temporary & use) {
    static_assert(!std::is_same_v<Temporary, Temporary>,
                  "fsdp: a Use that is not named ends with this expression, and its weights and gradients with it; "
                  "write auto use = pass.forward(unit), and take its tensors from use");
    return use;
  }
  Use(Pass<Stack> & pass, const sharding::Task& task)
      : pass_(&pass), task_(task), thrown_(std::uncaught_exceptions()) {}

  UseCheck check() const { return {pass_ == nullptr ? nullptr : &pass_->cursor_, task_}; }

  Pass<Stack>* pass_;
  sharding::Task task_;
  int thrown_;  ///< number of exceptions in flight at construction
};

}  // namespace fsdp
