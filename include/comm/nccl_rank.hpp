// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Nccl: one rank, its element types and device erased.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <comm/any_queue.hpp>
#include <comm/backend.hpp>
#include <comm/nccl_table.hpp>

namespace fsdp::comm {

class NcclLink;
class NcclBatch;

/// Every call is queued by the time it returns; small values go through memory of the device, and are waited for.
class NcclRank {
 public:
  static constexpr std::string_view queue_name = "nccl";
  /// For contributions that are rounded, and sums that are added to others; and for small values.
  static constexpr std::int64_t staging_bytes = 32 << 20;
  static constexpr std::int64_t value_bytes = 64 << 10;

  NcclRank(const nccl::Table& table, const nccl::Seat& seat, const Options& options);
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank();

  int rank() const { return monitor_.rank; }
  int size() const { return size_; }
  Monitor& monitor() { return monitor_; }
  const Monitor& monitor() const { return monitor_; }
  static std::int64_t scratch_bytes_for(int) { return staging_bytes + value_bytes; }
  std::int64_t scratch_bytes() const { return scratch_bytes_for(size_); }

  /// Before the first transfer.
  void move_with(AnyQueue queue);
  Transfer& prepare() { return transfer_; }
  Ticket start();
  bool test(Ticket);  ///< of the host's part
  void abandon(Ticket) noexcept;
  std::unique_ptr<NcclRank> split(int color);

  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  /// Null for small values, which were waited for.
  AnyEvent done(Ticket ticket) const {
    return next_ - ticket > done_.size() ? last_done_ : done_[ticket % done_.size()];
  }
  void wait_for(const AnyEvent& event);
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes);

 private:
  NcclRank(std::shared_ptr<NcclLink> link, int rank, int size, const Options& options);
  NcclBatch batch() const;
  void start_tensors();
  void move_values();
  void gather_values(const std::byte* mine, std::byte* all, std::int64_t bytes);
  void broadcast_value(std::byte* data, std::int64_t bytes);
  void clear(std::byte* data, std::int64_t bytes);

  std::shared_ptr<NcclLink> link_;  ///< shared with registered memory, which may live longer
  int size_;
  int exceptions_;  ///< in flight when this was made
  Monitor monitor_;
  Transfer transfer_;
  AnyQueue queue_;
  std::shared_ptr<std::byte> scratch_;
  std::shared_ptr<std::byte> values_;  ///< the host's side of small values
  std::vector<AnyEvent> after_;        ///< what the next transfer of tensors starts after
  std::vector<AnyEvent> done_;         ///< of the last transfers
  AnyEvent last_done_;                 ///< the latest of them, which will do for all before
  Ticket next_ = 0;
};

}  // namespace fsdp::comm
