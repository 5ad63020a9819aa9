// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/mpi_rank.hpp>

#include <tessera/comm/mpi.hpp>

#include "mpi_engine.hpp"
#include "mpi_library.hpp"

namespace fsdp::comm {

FSDP_BACKEND(template, MpiRank, device::Cpu, Mpi<>)

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

namespace {

void require_usable_mpi() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  require<InputError>(initialized != 0 && finalized == 0, "mpi: a communicator is adopted while MPI is ",
                      finalized != 0 ? "finalized already" : "not initialised",
                      "; adopt it between MPI_Init_thread and MPI_Finalize");
  int level = MPI_THREAD_SINGLE, is_main = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  require<InputError>(
      level > MPI_THREAD_SINGLE,
      "mpi: MPI was initialised for a program of one thread, and the library's kernels have threads; call "
      "MPI_Init_thread with MPI_THREAD_FUNNELED or more instead of MPI_Init");
  require<InputError>(
      level > MPI_THREAD_FUNNELED || is_main != 0,
      "mpi: a communicator is adopted on another thread than MPI's main thread, and MPI was initialised "
      "with MPI_THREAD_FUNNELED; ask MPI_Init_thread for MPI_THREAD_SERIALIZED or more");
}

void require_usable(MPI_Comm communicator) {
  require<InputError>(communicator != MPI_COMM_NULL,
                      "mpi: MPI_COMM_NULL is adopted; call adopt only on processes that are in the communicator");
  int inter = 0;
  check_mpi(MPI_Comm_test_inter(communicator, &inter), "MPI_Comm_test_inter");
  require<InputError>(inter == 0, "mpi: an inter-communicator is adopted; merge it first, with MPI_Intercomm_merge");
}

}  // namespace

std::unique_ptr<MpiRank> MpiRank::adopt(const void* communicator, std::size_t bytes, const Options& options) {
  require<InputError>(bytes == sizeof(MPI_Comm), "mpi: the program's MPI_Comm has ", bytes, " bytes, the library's ",
                      sizeof(MPI_Comm), "; build both with the same MPI");
  require_usable_mpi();
  require_usable(*static_cast<const MPI_Comm*>(communicator));
  Options of_guest = options;
  of_guest.threads = threads_in_host_program(options);
  return std::make_unique<MpiRank>(Messages(communicator, options.deadline), of_guest, nullptr);
}

struct StagedMpiRank::Range {
  std::byte* device = nullptr;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< byte offset in the staging memory
  bool read = false;        ///< whether the collective reads it
  bool written = false;
};

Ticket StagedMpiRank::start() {
  if (transfer_.values) {
    start_on_host(transfer_);
    return 0;
  }
  for (const AnyEvent& event : std::exchange(after_, {})) queue_.wait(event);
  const std::vector<Range> staged = ranges(transfer_);
  std::int64_t end = 0;
  for (const Range& range : staged) end = std::max(end, range.offset + range.bytes);
  if (end > staging_bytes_) staging_ = queue_.allocate_on_host(staging_bytes_ = end);
  for (const Range& range : staged)
    if (range.read) queue_.move(range.device, staging_.get() + range.offset, range.bytes);
  wait_for(queue_.record());

  Transfer on_host = transfer_;
  for (std::size_t index = 0; index < on_host.segments.size(); ++index) {
    const Range& full = staged[2 * index];
    const Range& local = staged[2 * index + 1];
    on_host.segments[index].full = staging_.get() + full.offset;
    on_host.segments[index].local = staging_.get() + local.offset;
  }
  start_on_host(on_host);

  for (const Range& range : staged)
    if (range.written) queue_.move(staging_.get() + range.offset, range.device, range.bytes);
  wait_for(queue_.record());
  return 0;
}

/// Returns two ranges per segment, `full` and `local`. `local` aliases its place in `full` if it does so on the device.
std::vector<StagedMpiRank::Range> StagedMpiRank::ranges(const Transfer& transfer) const {
  std::vector<Range> found;
  std::int64_t end = 0;
  for (const ByteSegment& segment : transfer.segments) {
    const std::int64_t before = segment.begin(rank()) * transfer.element_bytes();
    const bool in_place = segment.local == segment.full + before;
    const bool adds = transfer.op == Op::reduce_scatter && transfer.write == Write::accumulate;
    Range full{.device = segment.full,
               .bytes = segment.total() * transfer.element_bytes(),
               .offset = end,
               .read = transfer.reduces(),
               .written = transfer.op != Op::reduce_scatter};
    Range local{.device = segment.local,
                .bytes = segment.local_total(rank()) * transfer.element_bytes(),
                .offset = in_place ? full.offset + before : full.offset + full.bytes,
                .read = transfer.copies() || adds,
                .written = transfer.op == Op::reduce_scatter};
    found.push_back(full);
    found.push_back(local);
    end = std::max(full.offset + full.bytes, local.offset + local.bytes);
  }
  return found;
}

void StagedMpiRank::start_on_host(const Transfer& transfer) {
  host_->prepare() = transfer;
  host_->wait(host_->start());
}

}  // namespace fsdp::comm
