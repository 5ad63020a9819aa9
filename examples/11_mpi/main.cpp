// SPDX-License-Identifier: Apache-2.0
// 11: ranks are processes that mpirun starts, on one machine or several. The CMakeLists.txt next to this file is a
// complete project.
//
// `mpirun -np 2 11_mpi` prints the ranks with their hosts, and the falling loss; each rank stores half of every weight.
//
// Try next: change -np; then replace this loop by fsdp::train_main<Model>(argc, argv), as in 01, to get a full trainer.
#include <cstdio>
#include <vector>

#include <tessera/comm/mpi.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>

using Comm = fsdp::comm::Mpi<>;
using Model = fsdp::Llama<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Bf16Mixed, fsdp::tiling::Untiled>>;

int main() {
  return fsdp::train::launch<Comm>({}, [](Comm& communicator) {
    constexpr int length = 32;
    std::printf("rank %d of %d on %s\n", communicator.rank(), communicator.size(), fsdp::machine_name().c_str());
    std::fflush(stdout);
    fsdp::train::Training<Model> training(communicator, Model(fsdp::llama_preset("tiny")), {.sequence_length = length});
    training.initialize(1);
    std::vector<std::int32_t> numbers(length + 1);
    const fsdp::TokenBatch batch{{numbers.data(), {length}}, {numbers.data() + 1, {length}}, 1};
    for (int step = 0; step <= 90; ++step) {
      for (int i = 0; i <= length; ++i) numbers[i] = (7 * step + communicator.rank() + i) % 100;
      const double loss = training.step(batch, {.lr = 1e-3});
      if (communicator.rank() == 0 && step % 30 == 0) std::printf("step %d  loss %.3f\n", step, loss);
    }
  });
}
