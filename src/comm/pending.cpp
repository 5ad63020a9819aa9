// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/pending.hpp>

#include <algorithm>

namespace fsdp::comm {

Watched::Watched(Monitor& monitor, const Record& record)
    : monitor_(monitor), copied_before_(monitor.totals.copy_seconds), begin_(std::chrono::steady_clock::now()) {
  monitor_.current = record;
}

Watched::~Watched() {
  const double copied = monitor_.totals.copy_seconds - copied_before_;
  monitor_.totals.waiting_seconds += std::max(0.0, seconds() - copied);
}

CollectiveError Watched::explain(const CollectiveError& error) const {
  return CollectiveError(message("rank ", monitor_.world_rank_of(monitor_.rank), ", ", describe(monitor_.current),
                                 ", after ", in_seconds(std::chrono::duration<double>(seconds())), ": ", error.what()));
}

double Watched::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace fsdp::comm
