// SPDX-License-Identifier: Apache-2.0
#include "planned_stack.hpp"

#include <utility>

#include <tessera/comm/mpi_rank.hpp>
#include <tessera/comm/nccl_rank.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::stacks {
namespace {

using Kind = cli::CommChoice::Kind;

train::PlannedComm planned_comm(const cli::CommChoice& comm) {
  train::PlannedComm planned{.name = cli::name_of_comm(comm)};
  if (comm.kind == Kind::mpi) planned.scratch_bytes_for = comm::MpiRank::scratch_bytes_for;
  if (comm.kind == Kind::nccl) planned.scratch_bytes_for = comm::NcclRank::scratch_bytes_for;
  return planned;
}

}  // namespace

train::EstimatedStep estimate_step(const train::FlagSet& flags, const cli::Train& train, const plan::Cluster& cluster,
                                   bool tells) {
  const cli::StackChoice& asked = train.stack;
  const bool on_cuda = asked.comm.kind == Kind::nccl;
  require<InputError>(on_cuda == (cluster.device == "cuda"), "--cluster ", *train.options.cluster, " computes on ",
                      cluster.device, ", and this stack on ", on_cuda ? "cuda" : "cpu",
                      on_cuda ? "; take --comm threads or mpi" : "; take --comm nccl", ", or another cluster");
  const PlannedRun run{
      .flags = flags, .train = train, .cluster = cluster, .comm = planned_comm(asked.comm), .tells = tells};
  std::optional<train::EstimatedStep> step = on_cuda ? estimate_on_cuda(run) : estimate_on_cpu(run);
  require(step.has_value(), "plan: no stack has --sharding ", cli::to_text(asked.sharding), " --precision ",
          cli::to_text(asked.precision));
  return *std::move(step);
}

}  // namespace fsdp::stacks
