// SPDX-License-Identifier: Apache-2.0

#include <sched.h>

#include "ranks.hpp"

namespace fsdp::bench {

void bind_to_core(int number) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && number-- == 0) CPU_SET(core, &one);
  if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof(one), &one);
}

}  // namespace fsdp::bench
