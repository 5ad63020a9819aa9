// SPDX-License-Identifier: Apache-2.0
#include "mpi_engine.hpp"

namespace fsdp::comm {

MpiRank::MpiRank(Messages messages, const Options& options, MpiWatch* watch)
    : engine_(std::make_unique<Engine>(std::move(messages), options, watch)) {}
MpiRank::MpiRank(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
MpiRank::~MpiRank() {
  engine_->end();
  // MPI may still read the messages that a failed engine sent, so the engine is leaked.
  if (engine_->leaves_messages()) static_cast<void>(engine_.release());
}

int MpiRank::rank() const { return engine_->messages().rank(); }
int MpiRank::size() const { return engine_->messages().size(); }
Monitor& MpiRank::monitor() { return engine_->monitor; }
const Monitor& MpiRank::monitor() const { return engine_->monitor; }
std::int64_t MpiRank::scratch_bytes() const { return scratch_bytes_for(size()); }

Transfer& MpiRank::prepare() { return engine_->prepare(); }
Ticket MpiRank::start() { return engine_->start(); }
bool MpiRank::test(Ticket ticket) { return engine_->test(ticket); }
void MpiRank::wait(Ticket ticket) { engine_->wait(ticket); }
void MpiRank::abandon(Ticket) noexcept { engine_->give_up("an exception ended it while a collective was in flight"); }

std::unique_ptr<MpiRank> MpiRank::split(int color) {
  return std::unique_ptr<MpiRank>(new MpiRank(engine_->split(color)));
}

std::shared_ptr<std::byte> MpiRank::shared_memory(std::int64_t bytes) { return engine_->shared_memory(bytes); }

void MpiRank::library_all_gather(std::span<const float> local, std::span<float> full) {
  engine_->messages().library_all_gather(local, full);
}
void MpiRank::library_reduce_scatter(std::span<const float> full, std::span<float> local) {
  engine_->messages().library_reduce_scatter(full, local);
}

}  // namespace fsdp::comm
