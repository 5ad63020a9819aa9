// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small tensors that are not parameters: running means of batch norm, counters, codebooks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/optim/initialize.hpp>

namespace fsdp {

/// A tensor of floats that is replicated on every rank and that the caller writes between passes. Checkpoints contain
/// it.
struct Statistic {
  /// How a step merges the ranks' values.
  enum class Merge : std::uint8_t {
    own,    ///< each rank retains its own values; a checkpoint contains those of rank 0
    mean,   ///< all ranks receive the mean, summed in rank order
    first,  ///< all ranks receive the values of rank 0
  };
  std::string name;  ///< name in checkpoints, different from all parameters' names
  Shape shape;
  Initial initial = Initial::zeros;
  Merge merge = Merge::mean;
};

/// Statistics one after the other in one block of memory: the part of Statistics that is independent of a stack's
/// types.
class StatisticList {
 public:
  /// Returns the declared statistics.
  const std::vector<Statistic>& list() const { return list_; }

 protected:
  /// Throws InputError for a name that is already in use.
  StatisticList(std::vector<Statistic> list, GroupList groups);
  StatisticList(StatisticList&&) noexcept = default;
  StatisticList& operator=(StatisticList&&) noexcept = default;
  ~StatisticList();

  /// Returns the index of a statistic. Throws InputError for an unknown name.
  std::size_t index_of(std::string_view name) const;
  /// Returns a parameter that describes a statistic, from which its initial values are computed.
  Parameter parameter(std::size_t index) const;

  std::vector<Statistic> list_;
  std::vector<std::int64_t> starts_;  ///< [statistics]; index of each one's first element
  std::int64_t elements_ = 0;         ///< number of elements of all statistics, padding included
};

/// A rank's statistics in one block of memory.
template <class Module>
class Statistics : public StatisticList {
 public:
  using Comm = typename Module::Comm;
  using Device = typename Module::Device;

  /// `module` must outlive it. Throws InputError for a name that is already in use.
  Statistics(Module& module, std::vector<Statistic> list)
      : StatisticList(std::move(list), module.group_list()), module_(&module) {
    if (elements_ > 0)
      block_ = module.block_of(device::MemoryKind::weights, checked_multiply(elements_, std::int64_t{sizeof(float)}));
    list_merged();
  }

  /// Return a statistic's values, in memory that the device can read. Throw InputError for an unknown name.
  /// @{
  Tensor<float> values(std::string_view name) const { return values(index_of(name)); }
  Tensor<float> values(std::size_t index) const {
    return {reinterpret_cast<float*>(block_.data()) + starts_[index], list_[index].shape};
  }
  /// @}

  /// Sets initial values, which depend only on seed, name and index.
  void initialize(std::uint64_t seed) {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      device::OnHost<Device, float> host(module_->stream(), flat(i), device::Fetch::nothing);
      optim::initialize(host.values(), parameter(i), 0, seed);
      host.write_back();
    }
  }

  /// Enqueues one collective on the compute stream that merges the ranks' values. Collective.
  void merge() {
    Comm& communicator = module_->communicator();
    if (communicator.size() == 1 || merged_.empty()) return;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (list_[i].merge == Statistic::Merge::first && communicator.rank() != 0)
        device::enqueue(module_->stream(), device::Fill<float>{.y = flat(i), .value = 0.0f});
    comm::after(communicator, module_->stream().record());
    comm::all_reduce<float>(communicator, std::span<const comm::Segment<float>>(merged_), {"statistics"})
        .wait(module_->stream());
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (list_[i].merge == Statistic::Merge::mean)
        device::enqueue(module_->stream(),
                        device::Scale<float, float>{.x = Tensor<const float>(values(i).data(), {1, values(i).numel()}),
                                                    .y = {values(i).data(), {1, values(i).numel()}},
                                                    .factor = 1.0f / static_cast<float>(communicator.size())});
  }

 private:
  Tensor<float> flat(std::size_t index) const {
    const Tensor<float> whole = values(index);
    return {whole.data(), {whole.numel()}};
  }
  /// Lists the segments of an all-reduce: rank 0's piece is the whole statistic.
  void list_merged() {
    const Comm& communicator = module_->communicator();
    counts_.resize(list_.size());
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (list_[i].merge == Statistic::Merge::own) continue;
      const Tensor<float> all = flat(i);
      counts_[i].resize(static_cast<std::size_t>(communicator.size()));
      counts_[i].front() = all.numel();
      merged_.push_back({.local = all.data() + (communicator.rank() == 0 ? 0 : all.numel()),
                         .full = all.data(),
                         .counts = counts_[i]});
    }
  }
  Module* module_;
  std::vector<std::vector<std::int64_t>> counts_;  ///< counts of the segments in `merged_`
  std::vector<comm::Segment<float>> merged_;       ///< segments that a step merges
  device::Block<Device> block_;
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(fsdp::Statistic)
