// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/training/launch_options.hpp>

namespace fsdp::train {

void validate(const LaunchOptions& options) {
  require_in_range("threads", options.threads, thread_counts);
  require_in_range("deadline", options.deadline_seconds, deadlines);
  require_in_range("start-deadline", options.start_deadline_seconds, deadlines);
  require_in_range("device-deadline", options.device_deadline_seconds, deadlines);
  require_in_range("disk-deadline", options.disk_deadline_seconds, deadlines);
}

}  // namespace fsdp::train
