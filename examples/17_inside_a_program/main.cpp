// SPDX-License-Identifier: Apache-2.0
// 17: a guest in somebody's program. The program has threads, an MPI and an event loop of its own, and keeps them.
//
// A regression is trained twice: by two threads that this program makes, then by the processes of its own MPI_Init, on
// a communicator that it has already. The loop polls, and does other work while weights are on their way. In step 4 one
// rank gets a bad record and gives its pass up: all ranks skip that step. In step 8 one rank throws for good: the
// others hear of it at once, and all go on with a new communicator from weights that the host has kept.
//
// Runs alone, or as `mpirun -np 3 17_inside_a_program`.
//
// Try next: let another rank fail; raise the steps; take fsdp::Zero1.
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include <tessera/comm/mpi.hpp>
#include <tessera/comm/thread_ranks.hpp>
#include <tessera/fsdp/sharded.hpp>

#include "regression.hpp"

namespace {

constexpr int steps = 12, bad_record = 4, failure = 8;

/// What the host keeps between communicators: whole weights by name, and how far it is.
struct Kept {
  std::map<std::string, std::vector<float>> weights;
  int step = 0;
  long idle = 0;  ///< turns of the event loop in which the host did something else
};

/// Gives all ranks what rank 0 has kept: a failure may have reached others before they kept as much.
template <class Comm>
void share(Comm& ranks, Kept& kept) {
  const auto broadcast = [&]<class T>(std::span<T> values) {
    fsdp::comm::broadcast(ranks, std::as_writable_bytes(values), 0, {"what the host keeps"});
  };
  broadcast(std::span(&kept.step, 1));
  if (kept.step == 0) return;
  for (const fsdp::Unit& unit : regression::units())
    for (const fsdp::Parameter& parameter : unit.parameters) {
      std::vector<float>& whole = kept.weights[parameter.name];
      whole.resize(static_cast<std::size_t>(parameter.shape.numel()));
      broadcast(std::span(whole));
    }
}

/// Waits for the next computation as an event loop does.
template <class Pass>
void wait(Pass& pass, Kept& kept) {
  while (!pass.poll()) {
    ++kept.idle;
    std::this_thread::yield();
  }
}

/// Trains from what is kept to the last step. Throws what a rank throws, or that a peer has failed.
template <class Comm>
void train(Comm& ranks, Kept& kept, bool fails) {
  fsdp::Sharded<fsdp::Stack<fsdp::FullyShard<>, Comm, fsdp::Fp32>> model(ranks, regression::units());
  model.initialize(1);
  share(ranks, kept);
  for (const auto& [name, values] : kept.weights) model.set(name, values);
  const regression::Record record(ranks.rank());
  for (; kept.step < steps; ++kept.step) {
    const bool last = ranks.rank() == ranks.size() - 1;
    if (fails && last && kept.step == failure) throw std::runtime_error("the host's own error");
    double loss = 0;
    auto pass = model.train();
    try {
      wait(pass, kept);
      if (last && kept.step == bad_record && ranks.size() > 1) throw std::invalid_argument("a bad record");
      loss = regression::compute(pass, record, ranks.size());
      wait(pass, kept);
      pass.finish();
    } catch (const std::invalid_argument&) {
      pass.forfeit();
    }
    const auto decision = model.step(loss, {.lr = 0.05});
    if (ranks.rank() == 0 && decision.forfeited >= 0)
      std::printf("  step %d: rank %d gave its pass up, all skip it\n", kept.step, decision.forfeited);
    if (ranks.rank() == 0 && kept.step % 5 == 0) std::printf("  step %d  loss %.4f\n", kept.step, decision.loss);
    model.with_full({"*"}, [&](const fsdp::Parameter& parameter, fsdp::Tensor<const float> whole) {
      kept.weights[parameter.name].assign(whole.data(), whole.data() + whole.numel());
    });
  }
}

/// Trains; after a failure once more, with a new communicator.
template <class Join>
void train_surviving(const Join& join) {
  Kept kept;
  for (const bool fails : {true, false}) {
    try {
      auto ranks = join(fails);
      train(ranks, kept, fails && ranks.size() > 1);
      return;
    } catch (const fsdp::comm::CollectiveError& error) {
      std::printf("  a rank heard: %s\n", error.what());
    } catch (const std::exception&) {  // this rank's own: its communicator has told the others
    }
  }
}

void with_threads() {
  fsdp::comm::ThreadRanks first(2), second(2);
  const auto rank = [&](int number) {
    train_surviving([&](bool fails) { return (fails ? first : second).join(number); });
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    std::printf("two threads of this program:\n");
    with_threads();
    std::printf("processes of this program's MPI:\n");
  }
  train_surviving([](bool) { return fsdp::comm::Mpi<>::adopt(MPI_COMM_WORLD); });
  MPI_Finalize();
  return 0;
}
