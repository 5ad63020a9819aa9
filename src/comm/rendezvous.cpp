// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/rendezvous.hpp>

#include <random>

#include <tessera/fsdp/core/error.hpp>

#include "rendezvous_message.hpp"

namespace fsdp::comm {

void require_devices(const JobPlace& place, int devices) {
  require<InputError>(
      place.local_size <= devices, "rank ", place.rank, ": ", place.local_size,
      " ranks run on this machine, which has ", devices,
      " devices; NCCL wants one for each: start fewer ranks, or compile a stack on comm::Threads<device::Cuda>, whose "
      "ranks share one");
}

void require_ours(const RendezvousMessage& asked, const RendezvousMessage& answer, const std::string& where) {
  require<InputError>(answer.mark == rendezvous_mark && answer.number == asked.number, "rendezvous at ", where,
                      ": what answers is not rank 0 of this job; is the address another program's?");
  require<InputError>(answer.size == asked.size && answer.bytes == asked.bytes, "rendezvous at ", where, ": rank ",
                      asked.rank, " expects ", asked.size, " ranks and ", asked.bytes, " bytes, rank 0 ", answer.size,
                      " ranks and ", answer.bytes, " bytes; all ranks must be of the same job and program");
  require<InputError>(answer.refused == 0, "rendezvous at ", where, ": somebody else is rank ", asked.rank,
                      " already; every process needs a rank of its own");
}

std::uint64_t draw_number() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace fsdp::comm
