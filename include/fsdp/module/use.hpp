// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a unit while the caller computes it. A pass makes it: tessera/fsdp/module/pass.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/nearest.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

namespace fsdp {

template <class Stack>
class Pass;

/// A unit's tensors while the caller computes it. One Use of a pass is alive at a time. Its end (`done`, or the
/// destructor) starts what follows in the schedule (releases, reductions, the next gathers) and does not wait.
///
/// Views are contiguous, row-major, aligned to device::alignment (but not in buffer::Rows without pieces), and valid
/// until the end of the Use; afterwards they are poisoned in debug builds and under AddressSanitizer. Where the module
/// has fixed slots, a unit's views have the same addresses in each of its uses in a pass.
template <class Stack>
class [[nodiscard("a Use that is not named ends at once; write auto use = pass.forward(unit)")]] Use {
 public:
  using Compute = typename Stack::Precision::Compute;
  using Accumulate = typename Stack::Precision::Accumulate;

  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  /// Takes the computation over; `other` ends nothing.
  Use(Use && other) noexcept : pass_(std::exchange(other.pass_, nullptr)), task_(other.task_), thrown_(other.thrown_) {}
  /// Ends the computation, unless an exception unwinds.
  ~Use() noexcept(false) {
    if (std::uncaught_exceptions() == thrown_) done();
  }
  /// Ends the computation.
  void done() {
    if (Pass<Stack>* const pass = std::exchange(pass_, nullptr)) pass->computed();
  }

  /// A tensor by its index in Unit::parameters, or by name: a weight, or the gradient of one. A gradient's memory is
  /// not cleared; GradientView::next says how to write it. Throw LogicError after the end of the Use, for an unknown
  /// tensor, for a weight in a backward that was declared to need none, and for a gradient in a computation that makes
  /// none. The first request for a weight waits for the unit's gather.
  /// @{
  Tensor<const Compute> weight(std::size_t index) const& {
    require_weights();
    require_index(index);
    pass_->wait_for_weights();
    return pass_->tasks_.weight(task_.index, index);
  }
  Tensor<const Compute> weight(std::string_view name) const& { return weight(index_of(name)); }
  GradientView<Accumulate> gradient(std::size_t index) const& {
    require_gradients();
    require_index(index);
    return pass_->tasks_.gradient(task_.index, index, pass_->writes(task_));
  }
  GradientView<Accumulate> gradient(std::string_view name) const& { return gradient(index_of(name)); }
  /// @}
  /// All of them, in the order of the unit's fields: into a list of that length, or as a struct.
  /// @{
  void weights(std::span<Tensor<const Compute>> list) const& {
    require_weights();
    pass_->wait_for_weights();
    require_count(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = pass_->tasks_.weight(task_.index, i);
  }
  void gradients(std::span<GradientView<Accumulate>> list) const& {
    require_gradients();
    require_count(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      list[i] = pass_->tasks_.gradient(task_.index, i, pass_->writes(task_));
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
  /// A gradient for code that only adds: cleared before its first write.
  /// @{
  Tensor<Accumulate> zeroed(std::size_t index) const& {
    const GradientView<Accumulate> view = gradient(index);
    if (view.wanted() && view.next() == Write::overwrite) {
      device::enqueue(pass_->module_.stream(), device::Fill<Accumulate>{.y = view.tensor, .value = 0.0f});
      pass_->own_queue_follows();
    }
    return view.tensor;
  }
  Tensor<Accumulate> zeroed(std::string_view name) const& { return zeroed(index_of(name)); }
  /// @}
  /// Of a temporary, which ends before its views are used, they do not compile.
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

  /// The computation: its action, unit and micro-batch.
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

  bool under_way() const { return pass_ != nullptr && !pass_->over_; }
  void require_weights() const {
    require(under_way(), "use: a weight is asked for after the end of the use");
    if (!pass_->reads(task_))
      throw LogicError(message("use: ", pass_->text(task_), " was declared to need no weights; set the unit's ",
                               "backward_needs_weights"));
  }
  void require_gradients() const {
    require(under_way(), "use: a gradient is asked for after the end of the use");
    if (pass_->kind_ != sharding::Pass::train || task_.action == sharding::Action::forward)
      throw LogicError(
          message("use: ", pass_->text(task_), " makes no gradient in a pass of ", sharding::name_of(pass_->kind_)));
  }
  std::size_t count() const { return pass_->module_.references(task_.index).size(); }
  void require_index(std::size_t index) const {
    if (index >= count())
      throw LogicError(message("use: tensor ", static_cast<std::ptrdiff_t>(index), " is asked for, and ",
                               pass_->name_of(task_.index), " has ", count(), ", counted from 0"));
  }
  void require_count(std::size_t fields) const {
    if (fields != count())
      throw LogicError(message("use: a struct of ", fields, " fields for ", pass_->name_of(task_.index), ", which has ",
                               count(), " tensors"));
  }
  std::size_t index_of(std::string_view name) const {
    require(under_way(), "use: '", name, "' is asked for after the end of the use");
    const auto& references = pass_->module_.references(task_.index);
    for (std::size_t i = 0; i < references.size(); ++i)
      if (references[i].present() && pass_->module_.parameter(references[i]).name == name) return i;
    std::vector<std::string> names;
    for (const Reference& reference : references)
      if (reference.present()) names.push_back(pass_->module_.parameter(reference).name);
    throw LogicError(message("use: ", pass_->name_of(task_.index), " has no tensor '", name, "'; ",
                             names.empty() ? "it has none" : suggestion(name, names)));
  }

  Pass<Stack>* pass_;
  sharding::Task task_;
  int thrown_;  ///< exceptions in flight at construction
};

}  // namespace fsdp
