// SPDX-License-Identifier: Apache-2.0
#include "planned_stack.hpp"

#include <utility>

#include <tessera/comm/mpi_rank.hpp>
#include <tessera/comm/nccl_rank.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::stacks {

train::EstimatedStep estimate_step(const train::FlagSet& flags, const cli::Train& train, const plan::Cluster& cluster,
                                   bool tells) {
  const cli::StackChoice& asked = train.stack;
  using Kind = cli::CommChoice::Kind;
  const bool on_cuda = asked.comm.kind == Kind::nccl;
  require<InputError>(on_cuda == (cluster.device == "cuda"), "--cluster ", *train.options.cluster, " computes on ",
                      cluster.device, ", and this stack on ", on_cuda ? "cuda" : "cpu",
                      on_cuda ? "; take --comm threads or mpi" : "; take --comm nccl", ", or another cluster");
  train::PlannedComm comm{.name = cli::name_of_comm(asked.comm)};
  if (asked.comm.kind == Kind::mpi) comm.scratch_bytes_for = comm::MpiRank::scratch_bytes_for;
  if (on_cuda) comm.scratch_bytes_for = comm::NcclRank::scratch_bytes_for;
  const PlannedRun run{.flags = flags, .train = train, .cluster = cluster, .comm = comm, .tells = tells};
  std::optional<train::EstimatedStep> step = on_cuda ? estimate_on_cuda(run) : estimate_on_cpu(run);
  require<InputError>(step || !asked.has_float_weights,
                      cli::missing_parts_text(asked, {.comms = {comm.name}, .precisions = {}}));
  require(step.has_value(), "plan: no stack has --sharding ", cli::to_text(asked.sharding), " --precision ",
          cli::to_text(asked.precision));
  return *std::move(step);
}

}  // namespace fsdp::stacks
