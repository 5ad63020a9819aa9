// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks, while a schedule runs, that a ShardedModule's weights and gradients are in the expected memory.
///
///     testing::MemoryWatch<Model> watch(module);
///     Executor<Model> executor(module, watch.observer());
///
/// Every computation must find its weights unsharded in one of the slots that the schedule planned (or in their buffer
/// at rest, if no all-gather is needed); likewise, every reduction must find its gradients. A violation fails the
/// running test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/module/any_group.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// Addresses [begin, end).
struct Range {
  const void* begin = nullptr;
  const void* end = nullptr;

  /// Whether `inner` lies inside this range.
  bool holds(const Range& inner) const {
    const std::less_equal<const void*> before;
    return begin != nullptr && before(begin, inner.begin) && before(inner.end, end);
  }
};

/// Returns the range of `elements` that begin at `data`.
template <class T>
Range range_of(const T* data, std::int64_t elements) {
  return {data, data + elements};
}

/// For each unit (by its label): the `full` memory that the communicator was last given.
struct Moved {
  std::map<int, Range> gathered, reduced;
};

/// Watches one module. Give its observer() to the module's Executor.
template <class Model>
class MemoryWatch {
 public:
  using Module = ShardedModel<Model>;

  /// `module` must outlive this object. Fails the running test if the module's slots differ from those of its
  /// schedules.
  explicit MemoryWatch(Module& module) : module_(module), gradients_(module.groups().size()) {
    sharding::SlotSizes sizes;
    for (const auto pass : {sharding::Pass::train, sharding::Pass::evaluate})
      sizes = largest(std::move(sizes), sharding::slot_sizes(module.schedule(pass), module.problem()));
    const auto list = [](std::vector<Range>& ranges, const std::vector<std::int64_t>& expected, auto slot_at) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto* const slot = slot_at(static_cast<int>(i));
        expect_value("a slot has the size that the schedules of training and evaluation need", message("slot ", i),
                     "the number of its bytes", static_cast<std::int64_t>(slot->bytes), expected[i]);
        if (slot->bytes > 0) ranges.push_back(range_of(slot->data, slot->bytes));
      }
    };
    list(weight_slots_, sizes.weights, [&](int i) { return &module.weight_slot(i); });
    list(gradient_slots_, sizes.gradients, [&](int i) { return &module.gradient_slot(i); });
    gradient_slots_made_ = static_cast<int>(sizes.gradients.size());
  }

  /// Fills all gradients with NaN, which reveals reads of gradients that the step has not written.
  void fill_gradients_with_nan() {
    const auto fill_sums = [&](const auto& group) {
      if (group.facts().trainable) fill(group.summed_gradient().data(), group.summed_gradient().size());
    };
    for (auto& group : module_.groups()) with_group(group, fill_sums);
    for (int i = 0; i < gradient_slots_made_; ++i) {
      const auto& slot = module_.gradient_slot(i);
      fill(slot.template open<float>(), slot.bytes / std::int64_t{sizeof(float)});
    }
    module_.synchronize();
  }

  /// Returns the observer for an Executor. The watch must outlive the Executor.
  Observer observer() {
    return {.before = [](void* self, const sharding::Task& task) { static_cast<MemoryWatch*>(self)->before(task); },
            .after = [](void* self, const sharding::Task& task) { static_cast<MemoryWatch*>(self)->after(task); },
            .state = this};
  }
  /// Sets whether computations write gradients from now on.
  void set_training(bool training) { training_ = training; }
  /// Numbers of slots that the schedules planned.
  /// @{
  std::int64_t weight_slots() const { return static_cast<std::int64_t>(weight_slots_.size()); }
  std::int64_t gradient_slots() const { return static_cast<std::int64_t>(gradient_slots_.size()); }
  /// @}
  /// Number of views that were checked. 0 means that the watch was never called.
  std::int64_t checked() const { return checked_; }

 private:
  template <class F>
  decltype(auto) with(int index, F f) {
    return with_group(module_.groups()[static_cast<std::size_t>(index)], f);
  }

  void fill(float* data, std::int64_t count) {
    device::enqueue(module_.stream(), device::Fill<float>{.y = Tensor<float>(data, {count}), .value = NAN});
  }

  void before(const sharding::Task& task) {
    if (!sharding::computes(task.action)) return;
    const auto& use = module_.uses()[static_cast<std::size_t>(task.index)];
    if (!sharding::computes_forward(task.action) && !use.backward_needs_weights) return;
    for (const int index : use.groups) {
      if (!with(index, [](const auto& group) { return group.is_gathered(); }))
        return void(fail("the weights that a computation uses are gathered before it",
                         message("the weights of group ", index), "they are not gathered"));
      with(index, [&](const auto& group) {
        for (std::int64_t i = 0; i < count(index); ++i) {
          const auto weight = group.weight(i);
          this->expect_inside(range_of(weight.data(), weight.numel()), index, true);
        }
      });
    }
  }

  void after(const sharding::Task& task) {
    if (training_ && sharding::computes_backward(task.action))
      for (const int index : module_.uses()[static_cast<std::size_t>(task.index)].groups) {
        if (!module_.problem().group(index).trainable) continue;
        auto& views = gradients_[static_cast<std::size_t>(index)];
        views.clear();
        with(index, [&](const auto& group) {
          for (std::int64_t i = 0; i < count(index); ++i) {
            const auto gradient = group.gradient(i).tensor;
            views.push_back(range_of(gradient.data(), gradient.numel()));
          }
        });
      }
    if (task.action != sharding::Action::reduce) return;
    for (const Range& view : gradients_[static_cast<std::size_t>(task.index)]) expect_inside(view, task.index, false);
  }

  std::int64_t count(int index) const {
    return std::ssize(module_.group_list()[static_cast<std::size_t>(index)]->parameters());
  }

  /// Checks that a view lies in the buffer at rest if nothing is communicated. Otherwise it must lie in a slot, and in
  /// the memory that the communicator was given.
  void expect_inside(const Range& view, int index, bool weight) {
    ++checked_;
    const std::string where = message(weight ? "a weight" : "a gradient", " of group ", index);
    const bool at_rest = with(index, [&](const auto& group) {
      if (!(weight ? group.in_place() : group.adds_in_place())) return false;
      const auto range_at = [](const auto& buffer) { return range_of(buffer.data(), buffer.size()); };
      if (!(weight ? range_at(group.model()) : range_at(group.summed_gradient())).holds(view))
        fail("a group that nothing is gathered of is used where it is at rest", where, "it lies elsewhere");
      return true;
    });
    if (at_rest) return;
    if (std::ranges::none_of(weight ? weight_slots_ : gradient_slots_, [&](auto& slot) { return slot.holds(view); }))
      fail("gathered weights, and gradients to be reduced, lie in the slots of the plan", where, "in no slot");
    if constexpr (requires { module_.communicator().moved; }) {
      const Moved& moved = module_.communicator().moved;
      if (!(weight ? moved.gathered : moved.reduced).at(index).holds(view))
        fail("computations work where the collective does: nothing is copied between them", where,
             "not in the memory that the communicator was given");
    }
  }

  Module& module_;
  bool training_ = false;
  int gradient_slots_made_ = 0;
  std::vector<Range> weight_slots_, gradient_slots_;
  std::vector<std::vector<Range>> gradients_;
  std::int64_t checked_ = 0;
};

}  // namespace fsdp::testing
