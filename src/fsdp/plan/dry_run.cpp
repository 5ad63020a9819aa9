// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/dry_run.hpp>

#include <utility>

namespace fsdp::plan::detail {

MostLoaded::MostLoaded(const Request& request) : request_(request), one_(request) {}
MostLoaded::~MostLoaded() = default;

const Request& MostLoaded::request_of(int rank) {
  one_.rank = rank;
  record_ = {};
  if (request_.record != nullptr) one_.record = &record_;
  return one_;
}

void MostLoaded::add(const Plan& plan) {
  one_.matmuls = nullptr;  // matmuls are the same on all ranks, so they are listed once
  if (plan.peak_bytes() <= most_.peak_bytes()) return;
  most_ = plan;
  if (request_.record != nullptr) *request_.record = std::move(record_);
}

Plan MostLoaded::plan(bool same_on_all_ranks) {
  most_.same_on_all_ranks = same_on_all_ranks;
  return std::move(most_);
}

}  // namespace fsdp::plan::detail
