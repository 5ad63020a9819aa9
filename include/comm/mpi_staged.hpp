// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Mpi where the device is asynchronous: tensors go through memory of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <comm/any_queue.hpp>
#include <comm/mpi_rank.hpp>

namespace fsdp::comm {

/// Simple, not fast: a collective copies what it reads to the host, is done there, and copies back, before it returns.
class StagedMpiRank {
 public:
  static constexpr std::string_view queue_name = "mpi";

  explicit StagedMpiRank(std::unique_ptr<MpiRank> host) : host_(std::move(host)) {}

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  Monitor& monitor() { return host_->monitor(); }
  const Monitor& monitor() const { return std::as_const(*host_).monitor(); }
  std::int64_t scratch_bytes() const { return 0; }  ///< of the device

  void move_with(AnyQueue queue) { queue_ = std::move(queue); }
  Transfer& prepare() { return transfer_; }
  Ticket start();
  bool test(Ticket) const { return true; }
  void abandon(Ticket) noexcept {}
  std::unique_ptr<StagedMpiRank> split(int color) { return std::make_unique<StagedMpiRank>(host_->split(color)); }

  void after(AnyEvent event) { after_.push_back(std::move(event)); }
  AnyEvent done(Ticket) const { return nullptr; }
  void wait_for(const AnyEvent& event);

 private:
  struct Range;  ///< of the device's memory, and where it stands on the host
  std::vector<Range> ranges(const Transfer& transfer) const;
  void start_on_host(const Transfer& transfer);

  std::unique_ptr<MpiRank> host_;
  AnyQueue queue_;
  Transfer transfer_;
  std::vector<AnyEvent> after_;         ///< what the next transfer of tensors starts after
  std::shared_ptr<std::byte> staging_;  ///< the host's
  std::int64_t staging_bytes_ = 0;
};

}  // namespace fsdp::comm
